// 200 paths that try to leave a workspace, to reach what is protected in it, or to be taken for something they are not.
// `OUT` stands for the real path of the folder beside the workspace, `IN` for the workspace's own.

/** Without white space, several to a line. */
const WORDS = String.raw`
.. ../ ../.. ../../.. ../outside ../outside/ ../outside/secret ../outside/new ../outside/deep/new ../workspace/../outside/secret
./../outside/secret ././../outside/secret .//..//outside//secret dir/../../outside/secret dir/../../outside/new dir/./../../outside/secret
dir/../dir/../../outside/secret gone/../../outside/secret gone/../../outside/new gone/gone/../../../outside/secret a.txt/../../outside/secret
a.txt/../../../etc/passwd dir/b.txt/../../../outside/secret ../../etc/passwd ../../../../../../../../etc/passwd ../../../../../../../../etc/shadow
/ // /. /.. /etc/passwd //etc/passwd /./etc/passwd /etc/../etc/passwd /etc/hostname /proc/self/environ /proc/self/mem /proc/self/maps
/proc/self/cwd/a.txt /proc/self/root/./etc/passwd /proc/self/fd/0 /proc/1/environ /proc/self/exe /dev/null /dev/zero /dev/stdin /dev/fd/0
/dev/full /sys/kernel/notes /var/run/x /tmp/x /root/.ssh/id_rsa /home OUT OUT/ OUT/secret OUT/new OUT/deep/new OUT/./secret OUT/../outside/secret
/OUT/secret IN/../outside/secret IN/../outside/new IN/dir/../../outside/secret IN-2/secret IN-2/new IN-2 ../workspace-2/secret ../workspace-2/new
../workspace-2 out out/ out/. out/secret out/new out/deep/new out/../secret out/../workspace/out/secret out/../outside/secret out/../../etc/passwd
./out/secret dir/../out/secret dir/out dir/out/secret dir/out/new dir/out/../secret dir/../dir/out/secret up up/outside/secret up/outside/new
up/workspace/../outside/secret up/workspace-2/secret up/up/etc top top/etc/passwd top/proc/self/environ top/dev/zero top/tmp/x file-out file-out/
file-out/x file-out/../secret ./file-out dir/../file-out dangling dangling/ dangling/x dangling/../x dangling/../../x ./dangling far-dangling
far-dangling/x loop loop/x loop/../x loop/../../outside/secret loop-a loop-a/x chain chain/secret chain/new chain/../secret chain-file
chain-file/.. self/../../outside/secret self/out/secret self/self/self/out/new self/../../outside/new self/dangling self/file-out
.metis .metis/ .metis/. .metis/trust.yaml .metis/./trust.yaml .metis//trust.yaml .metis/../.metis/trust.yaml dir/../.metis/trust.yaml
./.metis/trust.yaml IN/.metis/trust.yaml .metis/routing.yaml .metis/.env .metis/new .metis/workers/a.yaml .metis/skills/new.md .metis/USER.md
.metis/MEMORY.md .METIS/trust.yaml .Metis/trust.yaml .mEtIs/new .METIS alias alias/trust.yaml alias/new alias/../alias/trust.yaml alias/skills/x
self/.metis/trust.yaml self/alias/trust.yaml trust-link trust-link/x up/workspace/.metis/trust.yaml out/../workspace/.metis/trust.yaml
.metis/out .metis/out/secret .metis/skills/out/secret .metis/skills/../trust.yaml .metis/skills/../../../outside/secret .metis/MEMORY.md/../trust.yaml
pipe pipe/x socket socket/x ~/../../../etc/passwd ~root/.ssh $HOME/../../etc/passwd file:///etc/passwd file://OUT/secret http://example.com/x
....//....//etc/passwd ..././..././etc/passwd %2e%2e/outside/secret ..%2foutside%2fsecret ..\outside\secret ..\..\etc\passwd C:\Windows\x
.../outside/secret .. /outside/secret -rf --help * ?`;

/** Characters that a list of words cannot hold. */
const CHARACTERS = [
  '',
  '\0',
  'a.txt\0',
  '../outside/secret\0.txt',
  'out\0/../a.txt',
  ' ',
  ' ../outside/secret',
  '../outside/secret ',
  '..\n/outside/secret',
  '..\r/../outside/secret',
  '\u2024\u2024/outside/secret',
  '\uff0e\uff0e/outside/secret',
  '..\u2215outside\u2215secret',
  '..\u200b/outside/secret',
  '.met\u200cis/trust.yaml',
  '.met\u200cis/new',
  '\ufeff.metis/new',
  '.meti\u017f/trust.yaml',
  '.meti\u017f/new',
  '\uff0emetis/new',
  '.\uff4detis/new',
  '.metis\u0301/new',
  'dir/../.meti\u017f/new',
  `${'../'.repeat(300)}etc/passwd`,
  `${'dir/../'.repeat(500)}../outside/secret`,
  `${'self/'.repeat(60)}out/secret`,
  `${'x'.repeat(300)}/../../outside/secret`,
  'x'.repeat(5000),
  `out/${'é'.repeat(3000)}`,
];

export function hostilePaths(inside: string, outside: string): readonly string[] {
  const words = WORDS.trim().split(/\s+/);
  return [...words, ...CHARACTERS].map((path) => path.replaceAll('OUT', outside).replaceAll('IN', inside));
}
