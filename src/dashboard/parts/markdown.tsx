// Markdown as elements and text: a model's words never become markup, and nothing is loaded because of them.
import type { Token, Tokens } from 'marked';
import { type ComponentChildren, createContext } from 'preact';
import { useContext, useEffect, useMemo, useState } from 'preact/hooks';
import { abandonParse, type Parsed, parseMarkdown } from '../data/parse-markdown.ts';
import { CopyButton } from './copy-button.tsx';
import { Clipped } from './panels.tsx';

const DEEPEST = 20;
const LINKS = /^(?:https?:|mailto:)/i;
const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'", nbsp: ' ' };

/** The place in this page of a relative link; null: the link is shown as text. Models' words have no such places. */
export const LinkContext = createContext<(href: string) => string | null>(() => null);

export function Markdown({ text }: { readonly text: string }) {
  const tokens = useParsed(text);
  if (tokens === null) return <Clipped text={text}>{(shown) => <div class="markdown plain">{shown}</div>}</Clipped>;
  return <div class="markdown">{blocks(tokens, 0)}</div>;
}

/**
 * The tokens of `text`; null = it is shown as it is. While a worker parses text that grows, the last tokens stay; once it
 * gave up on a text, what follows that text is not parsed either.
 */
function useParsed(text: string): Parsed {
  const [last, setLast] = useState<{ readonly text: string; readonly tokens: Parsed } | null>(null);
  const continues = last !== null && text.startsWith(last.text);
  const gaveUp = continues && last.tokens === null;
  const parsed = useMemo(() => (gaveUp ? null : parseMarkdown(text)), [gaveUp, text]);
  useEffect(() => {
    if (!(parsed instanceof Promise)) return;
    let isCurrent = true;
    void parsed.then((tokens) => isCurrent && setLast({ text, tokens }));
    return () => {
      isCurrent = false;
      abandonParse(parsed);
    };
  }, [parsed, text]);
  if (!(parsed instanceof Promise)) return parsed;
  if (continues) return last.tokens;
  return null;
}

function blocks(tokens: readonly Token[], depth: number): ComponentChildren {
  if (depth > DEEPEST) return tokens.map(({ raw }) => raw).join('');
  return tokens.map((token, i) => <Piece key={`${i} ${token.type}`} token={token} depth={depth} />);
}

function Piece({ token, depth }: { readonly token: Token; readonly depth: number }): ComponentChildren {
  const inner = (of: { readonly tokens?: readonly Token[] | undefined; readonly text?: string }) => {
    if (of.tokens === undefined) return decodeEntities(of.text ?? '');
    return blocks(of.tokens, depth + 1);
  };
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      // The page has its own headings; those of a message are strong lines in it.
      return <p class={`heading h${Math.min(token.depth, 4)}`}>{inner(token as Tokens.Heading)}</p>;
    case 'paragraph':
      return <p>{inner(token as Tokens.Paragraph)}</p>;
    case 'text':
      return <>{inner(token as Tokens.Text)}</>;
    case 'escape':
      return <>{token.text}</>;
    case 'strong':
      return <strong>{inner(token as Tokens.Strong)}</strong>;
    case 'em':
      return <em>{inner(token as Tokens.Em)}</em>;
    case 'del':
      return <del>{inner(token as Tokens.Del)}</del>;
    case 'br':
      return <br />;
    case 'hr':
      return <hr />;
    case 'codespan':
      return <code>{token.text}</code>;
    case 'code':
      return <CodeBlock text={token.text} />;
    case 'blockquote':
      return <blockquote>{inner(token as Tokens.Blockquote)}</blockquote>;
    case 'list':
      return <List list={token as Tokens.List} depth={depth} />;
    case 'table':
      return <MarkdownTable table={token as Tokens.Table} depth={depth} />;
    case 'link':
      return <Link link={token as Tokens.Link}>{inner(token as Tokens.Link)}</Link>;
    case 'image':
      // Never loaded: the page asks no other host for anything.
      return <span class="quiet">[image: {token.text || token.href}]</span>;
    default:
      // Markup among them: it is shown, not followed.
      return <>{token.raw}</>;
  }
}

/** A figure and no region: landmarks must differ by name, and an answer may hold many. */
export function CodeBlock({ text, name = 'Code' }: { readonly text: string; readonly name?: string }) {
  return (
    <Clipped text={text}>
      {(shown) => (
        <div class="copied">
          <figure class="code-block" aria-label={name} tabIndex={0}>
            <pre>
              <code>{shown}</code>
            </pre>
          </figure>
          <CopyButton text={text} name={`Copy: ${name}`} />
        </div>
      )}
    </Clipped>
  );
}

function Link({ link, children }: { readonly link: Tokens.Link; readonly children: ComponentChildren }) {
  const place = useContext(LinkContext)(link.href);
  if (place !== null) return <a href={place}>{children}</a>;
  if (!LINKS.test(link.href)) return <>{children}</>;
  return (
    <a href={link.href} target="_blank" rel="noopener noreferrer" title={link.href}>
      {children}
    </a>
  );
}

function List({ list, depth }: { readonly list: Tokens.List; readonly depth: number }) {
  const items = list.items.map((item, i) => (
    <li key={`${i} ${item.raw.length}`}>
      {item.task && (item.checked ? '☑ ' : '☐ ')}
      {blocks(item.tokens, depth + 1)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function MarkdownTable({ table, depth }: { readonly table: Tokens.Table; readonly depth: number }) {
  return (
    <figure class="table-scroll" aria-label="Table" tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            {table.header.map((cell, i) => (
              <th key={`${i} ${cell.text}`} scope="col" class={alignmentClass(cell)}>
                {blocks(cell.tokens, depth + 1)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, r) => (
            <tr key={`${r} ${row[0]?.text}`}>
              {row.map((cell, i) => (
                <td key={`${i} ${cell.text}`} class={alignmentClass(cell)}>
                  {blocks(cell.tokens, depth + 1)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}

function decodeEntities(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => ENTITIES[name] ?? '');
}

function alignmentClass({ align }: Tokens.TableCell): string | undefined {
  if (align === 'right') return 'numeric';
  return undefined;
}
