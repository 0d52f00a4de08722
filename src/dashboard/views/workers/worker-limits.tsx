// What a definition allows and limits: folders, tools and when they ask, files handed over, whom it may call (13 §2).
import type { ComponentChildren } from 'preact';
import type { WorkerDetail } from '#client/client.ts';
import { plural } from '#dashboard/format/number.ts';
import { Badge, type Tone } from '#dashboard/parts/badge.tsx';

type Definition = NonNullable<WorkerDetail['definition']>;
type Rule = Definition['tool_rules'][string];

export function WorkerLimits({ definition }: { readonly definition: Definition }) {
  const { sandboxes, tools, tool_rules, allow_workers, attachment_policy: policy } = definition;
  return (
    <section class="panel" aria-label="What it may touch">
      <h2>What it may touch</h2>
      <dl class="limits">
        <Limit name="Folders" none="no files at all">
          {Object.values(sandboxes).map(({ name, path, mode, allowed_suffixes, max_bytes }) => (
            <li key={name}>
              <code>{name}</code>{' '}
              <Badge tone={mode === 'rw' ? 'warn' : 'plain'}>{mode === 'rw' ? 'read and write' : 'read'}</Badge> {path}{' '}
              <span class="quiet">
                {suffixes(allowed_suffixes)}, {plural(max_bytes, 'byte')} a file
              </span>
            </li>
          ))}
        </Limit>
        <Limit name="Tools" none="none but those of its folders">
          {tools.map((tool) => (
            <li key={tool}>
              <code>{tool}</code>
            </li>
          ))}
        </Limit>
        <Limit name="Approval" none="as the server decides">
          {Object.values(tool_rules).map((rule) => (
            <li key={rule.name}>
              <code>{rule.name}</code> <Badge tone={modeOf(rule).tone}>{modeOf(rule).word}</Badge>{' '}
              <span class="quiet">{rule.description}</span>
            </li>
          ))}
        </Limit>
        <Limit name="Workers it may call" none="none">
          {allow_workers.map((name) => (
            <li key={name}>
              <code>{name === '*' ? 'every one of the project' : name}</code>
            </li>
          ))}
        </Limit>
        <Limit name="Files handed over" none="the standard policy: up to 4 files, 10,000,000 bytes in all">
          {policy !== null && (
            <li>
              {policy.max_attachments === 0
                ? 'none'
                : `up to ${plural(policy.max_attachments, 'file')}, ${plural(policy.max_total_bytes, 'byte')} in all, ${suffixes(policy.allowed_suffixes)}`}
              {policy.denied_suffixes.length > 0 && ` but ${policy.denied_suffixes.join(' ')}`}
            </li>
          )}
        </Limit>
        <Limit name="Answer" none="text">
          {definition.output_schema_ref !== null && (
            <li>
              as <code>{definition.output_schema_ref}</code> says
            </li>
          )}
        </Limit>
        <Limit name="Ends" none="with its work">
          {definition.timeout_seconds !== null && <li>after {plural(definition.timeout_seconds, 'second')} at most</li>}
          {definition.max_tokens !== null && (
            <li>each answer after {plural(definition.max_tokens, 'token')} at most</li>
          )}
        </Limit>
      </dl>
    </section>
  );
}

/** A name and its entries; without any, what holds then. */
function Limit(props: { readonly name: string; readonly none: string; readonly children: ComponentChildren }) {
  const entries = [props.children].flat().filter((entry) => entry !== null && entry !== false);
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{entries.length === 0 ? <span class="quiet">{props.none}</span> : <ul>{props.children}</ul>}</dd>
    </div>
  );
}

function modeOf({ allowed, approval_required }: Rule): { readonly word: string; readonly tone: Tone } {
  if (!allowed) return { word: 'forbidden', tone: 'bad' };
  if (approval_required === null) return { word: 'as the server decides', tone: 'plain' };
  return approval_required ? { word: 'asks first', tone: 'warn' } : { word: 'does not ask', tone: 'ok' };
}

function suffixes(allowed: readonly string[]): string {
  return allowed.length === 0 ? 'all kinds' : allowed.map((suffix) => suffix || 'without suffix').join(' ');
}
