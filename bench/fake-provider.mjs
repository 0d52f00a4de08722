// A model provider for load tests: Anthropic Messages and Chat Completions over HTTP, every answer made beforehand.
//
// What it answers is written in the request, as the last marker in its body, e.g. `[[bench chunks=20 delay=200]]`:
//   chunks=N    text deltas of the answer (20)
//   delay=MS    pause before the answer (0)
//   rate=N      deltas a second; 0 sends the whole answer at once (0)
//   first=MS    pause between the head of the answer and its first delta, with a rate (0: one interval)
//   delegate=N  answers with N calls of `delegate`, each asking for the same chunks and pace (0)
//   background=1  these workers run in the background, and the same answer waits for all of them (0; Messages alone)
//   background=2  they do, and the next answer waits for them
//   wait=1      answers with a wait for all background workers; what `background=2` leaves for the next request (0)
// With a rate every delta carries the monotonic time of its sending: `@<nanoseconds>@`.
// The calls' markers stand behind the one that asked for them, so the next request of the same turn gets plain text.
import http from 'node:http';
import { performance } from 'node:perf_hooks';

const MARKER = Buffer.from('[[bench ');
const DEFAULTS = { chunks: 20, delay: 0, rate: 0, first: 0, delegate: 0, background: 0, wait: 0 };
const LIMITS = { chunks: 10_000, delay: 10_000, rate: 1000, first: 10_000, delegate: 32, background: 2, wait: 1 };
const HEAD = { 'content-type': 'text/event-stream', 'request-id': 'req_bench' };
const INPUT_TOKENS = 1200;
const CUT = '@cut@';

/** The text of delta `i`. */
const word = (i) => `word ${String(i).padStart(4, '0')} `;

const wires = {
  '/v1/messages': {
    event: (data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`,
    open() {
      const usage = { input_tokens: INPUT_TOKENS, cache_read_input_tokens: 0, output_tokens: 1 };
      const message = { id: 'msg_bench', type: 'message', role: 'assistant', model: 'bench', content: [], usage };
      return this.event({ type: 'message_start', message });
    },
    openText(index = 0) {
      return this.event({ type: 'content_block_start', index, content_block: { type: 'text', text: '' } });
    },
    delta(text, index = 0) {
      return this.event({ type: 'content_block_delta', index, delta: { type: 'text_delta', text } });
    },
    closeText(index = 0) {
      return this.event({ type: 'content_block_stop', index });
    },
    /** Behind calls, so that its marker is the last one in the next request. */
    text(index, text) {
      return this.openText(index) + this.delta(text, index) + this.closeText(index);
    },
    call(index, input, name = 'delegate') {
      const content_block = { type: 'tool_use', id: `toolu_bench_${index}`, name, input: {} };
      const delta = { type: 'input_json_delta', partial_json: JSON.stringify(input) };
      return [
        this.event({ type: 'content_block_start', index, content_block }),
        this.event({ type: 'content_block_delta', index, delta }),
        this.event({ type: 'content_block_stop', index }),
      ].join('');
    },
    close(tools, output_tokens) {
      const delta = { stop_reason: tools ? 'tool_use' : 'end_turn', stop_sequence: null };
      return (
        this.event({ type: 'message_delta', delta, usage: { output_tokens } }) + this.event({ type: 'message_stop' })
      );
    },
  },
  '/v1/chat/completions': {
    event: (data) =>
      `data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', model: 'bench', ...data })}\n\n`,
    choice(delta, finish_reason = null) {
      return this.event({ choices: [{ index: 0, delta, finish_reason }] });
    },
    open() {
      return this.choice({ role: 'assistant', content: '' });
    },
    openText: () => '',
    delta(content) {
      return this.choice({ content });
    },
    closeText: () => '',
    call(index, input) {
      const called = { name: 'delegate', arguments: JSON.stringify(input) };
      return this.choice({ tool_calls: [{ index, id: `call_bench_${index}`, type: 'function', function: called }] });
    },
    close(tools, completion_tokens) {
      const usage = { prompt_tokens: INPUT_TOKENS, completion_tokens, total_tokens: INPUT_TOKENS + completion_tokens };
      return `${this.choice({}, tools ? 'tool_calls' : 'stop')}${this.event({ choices: [], usage })}data: [DONE]\n\n`;
    },
  },
};

/** Marker text and wire -> the answer: whole, or in pieces around the time of sending. */
const answers = new Map();

function answerTo(path, marker) {
  const key = `${path} ${marker}`;
  const known = answers.get(key);
  if (known) return known;
  const made = makeAnswer(wires[path], readMarker(marker));
  answers.set(key, made);
  return made;
}

function makeAnswer(wire, asked) {
  const whole = (calls) => Buffer.from([wire.open(), ...calls, wire.close(true, 40 * calls.length)].join(''));
  const { chunks, delay, rate, first, delegate, background } = asked;
  const pace = `chunks=${chunks} delay=${delay} rate=${rate} first=${first}`;
  const wait = (index) => wire.call(index, { action: 'wait', for: 'all' }, 'workers');
  if (asked.wait > 0) return { ...asked, rate: 0, whole: whole([wait(0), wire.text(1, `[[bench ${pace}]]`)]) };
  if (delegate > 0) {
    const task = `Answer in a few words. [[bench ${pace}]]`;
    const input = { tier: 'fast', task, ...(background > 0 && { background: true }) };
    const calls = Array.from({ length: delegate }, (_, i) => wire.call(i, input));
    if (background === 1) calls.push(wait(delegate));
    if (background === 2) calls.push(wire.text(delegate, `[[bench wait=1 ${pace}]]`));
    return { ...asked, rate: 0, whole: whole(calls) };
  }
  const head = wire.open() + wire.openText();
  const tail = wire.closeText() + wire.close(false, 2 * asked.chunks);
  if (asked.rate > 0) {
    const [before, after] = wire.delta(CUT).split(CUT);
    return { ...asked, head, before: `${before}@`, after: `@${after}`, tail };
  }
  const deltas = Array.from({ length: asked.chunks }, (_, i) => wire.delta(word(i)));
  return { ...asked, whole: Buffer.from([head, ...deltas, tail].join('')) };
}

function readMarker(text) {
  const asked = { ...DEFAULTS };
  for (const pair of text.split(' ')) {
    const [name, value] = pair.split('=');
    if (name in LIMITS) asked[name] = Math.min(Math.max(0, Number.parseInt(value, 10) || 0), LIMITS[name]);
  }
  return asked;
}

function markerIn(body) {
  const from = body.lastIndexOf(MARKER);
  if (from < 0) return '';
  const start = from + MARKER.length;
  return body.toString('latin1', start, Math.max(start, body.indexOf(']]', start)));
}

function reply(response, answer) {
  response.writeHead(200, HEAD);
  if (answer.rate === 0) {
    response.end(answer.whole);
    return;
  }
  response.write(answer.head);
  const interval = 1000 / answer.rate;
  let sent = 0;
  // Each delta has its time from the start on: a late one does not put off those behind it.
  const due = performance.now() + (answer.first || interval);
  const send = () => {
    response.write(`${answer.before}${process.hrtime.bigint()}${answer.after}`);
    sent += 1;
    if (sent < answer.chunks) wait();
    else response.end(answer.tail);
  };
  let timer;
  const wait = () => {
    timer = setTimeout(send, Math.max(0, due + sent * interval - performance.now()));
  };
  wait();
  response.on('close', () => clearTimeout(timer));
}

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    if (!(request.url in wires)) {
      response.writeHead(404).end();
      return;
    }
    const body = pieces.length === 1 ? pieces[0] : Buffer.concat(pieces);
    const answer = answerTo(request.url, markerIn(body));
    if (answer.delay === 0) reply(response, answer);
    else setTimeout(reply, answer.delay, response, answer);
  });
});
server.keepAliveTimeout = 60_000;
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.stdout.write(`listens on http://127.0.0.1:${server.address().port}\n`);
});
// Whoever started this process holds the other end of its input.
process.stdin.resume().on('end', () => process.exit(0));
