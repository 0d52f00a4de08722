// Makes of a bundle of modules the same bundle of CommonJS scripts, whose compiled code can be kept with the functions
// that ran (`src/server/built-scripts.ts`). A script's places are those of its module, one line further down, so that its map stays true.
import fs from 'node:fs';
import vm from 'node:vm';
import { parse } from '@babel/parser';

/** In the first line of a script, behind which its imports stand, as they come before all else in a module. */
const HEAD = '"use strict";var $req=require,$exp=exports,$imp=async name=>require(name)';
const NAMES = /^\$(?:req|exp|imp\d*|dft)$/;

/**
 * Rewrites a file and its map. What a module exports is copied when it has run, so that nothing stands between a function
 * and its caller: throws where a value is assigned again.
 */
export function makeScript(file) {
  const text = fs.readFileSync(file, 'utf8');
  const { program } = parse(text, { sourceType: 'module' });
  const imports = program.body.filter(({ type }) => type === 'ImportDeclaration').map(writeImport);
  const exported = program.body.flatMap(listExports);
  const locals = new Set(exported.map(([local]) => local));
  const edits = program.body.flatMap(rewriteStatement);
  visit(program, (node, isLater) => {
    if (NAMES.test(node.name)) throw new Error(`${file}: ${node.name} is in use`);
    const { type, name } = getAssigned(node);
    if (isLater && type === 'Identifier' && locals.has(name))
      throw new Error(`${file}: ${name} is exported and assigned again`);
    edits.push(...rewriteExpression(node));
  });
  const copied = exported.map(([local, name]) => (local === name ? name : `${name}:${local}`));
  const [code, mapComment] = applyEdits(text, edits).split(/^(?=\/\/# sourceMappingURL=)/m);
  const script = `${[HEAD, ...imports].join(',')};\n${code}Object.assign($exp,{${copied.join(',')}});\n${mapComment}`;
  // Refuses what only a module may hold.
  new vm.Script(`(function(exports,require,module,__filename,__dirname){${script}\n})`, { filename: file });
  fs.writeFileSync(file, script);
  const map = JSON.parse(fs.readFileSync(`${file}.map`, 'utf8'));
  fs.writeFileSync(`${file}.map`, JSON.stringify({ ...map, mappings: `;${map.mappings}` }));
}

const NO_SUCH_EXPORT = 'an export in a form that the bundler does not write';

/** Local and exported name. */
function listExports({ type, specifiers, source, declaration }) {
  if (type === 'ExportDefaultDeclaration' && !/Declaration$/.test(declaration.type)) return [['$dft', 'default']];
  if (!type.startsWith('Export')) return [];
  if (type !== 'ExportNamedDeclaration' || source || declaration) throw new Error(NO_SUCH_EXPORT);
  return specifiers.map(({ local, exported }) => [local.name, exported.name]);
}

function getAssigned({ type, left, argument }) {
  if (type === 'AssignmentExpression') return left;
  if (type === 'UpdateExpression') return argument;
  return {};
}

function rewriteStatement({ type, start, end, declaration }) {
  if (type === 'ExportDefaultDeclaration') return [{ start, end: declaration.start, to: 'var $dft=' }];
  if (type === 'ImportDeclaration' || type === 'ExportNamedDeclaration') return [{ start, end, to: '' }];
  return [];
}

/**
 * One or two parts of a declaration. What is not ours is of Node.js or CommonJS: there a default import is all that is
 * exported.
 */
function writeImport({ specifiers, source }, index) {
  const from = `$req(${JSON.stringify(source.value)})`;
  const isOurs = source.value.startsWith('.');
  const isWhole = ({ type }) => type === 'ImportNamespaceSpecifier' || (type === 'ImportDefaultSpecifier' && !isOurs);
  const whole = specifiers.find(isWhole)?.local.name ?? `$imp${index}`;
  const names = specifiers
    .filter((specifier) => !isWhole(specifier))
    .map(({ imported = { name: 'default' }, local }) => `${imported.name}:${local.name}`);
  return `${whole}=${from}${names.length === 0 ? '' : `,{${names.join(',')}}=${whole}`}`;
}

/** Imports at run time, and the place of the module itself. */
function rewriteExpression({ type, start, end, callee, arguments: [name] = [], object, property }) {
  if (type === 'CallExpression' && callee.type === 'Import' && name.value?.startsWith('.'))
    return [{ start, end, to: `$imp(${JSON.stringify(name.value)})` }];
  if (type !== 'MemberExpression' || object.type !== 'MetaProperty' || object.meta.name !== 'import') return [];
  if (['url', 'filename'].includes(property.name)) return [{ start, end, to: '__filename' }];
  throw new Error(`import.meta.${property.name} in a script`);
}

/** What is shorter is filled with blanks, so that all that follows in its line stays where it was. */
function applyEdits(text, edits) {
  let done = '';
  let at = 0;
  for (const { start, end, to } of edits.sort((a, b) => a.start - b.start)) {
    if (to.length > end - start) throw new Error(`longer than what it replaces: ${to}`);
    done += text.slice(at, start) + to.padEnd(end - start);
    at = end;
  }
  return done + text.slice(at);
}

/** `isLater`: in a function, which may run when the module has ended. */
function visit(node, look, isLater = false) {
  look(node, isLater);
  const isInside = isLater || /Function|Method/.test(node.type);
  for (const value of Object.values(node)) {
    for (const child of [value].flat()) if (typeof child?.type === 'string') visit(child, look, isInside);
  }
}
