// The lower yardstick: bytes from a provider to a caller by `node:http` alone, over kept-open connections. It parses
// nothing, stores nothing and checks nothing: what is left is what the runtime's sockets cost.
// Argument: the provider's origin.
import http from 'node:http';

const [origin] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    const sent = Buffer.concat(pieces);
    // A provider's own path takes its bytes as they are.
    const body = request.url === '/v1/messages' ? sent : asMessages(sent);
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    const upstream = http.request(`${origin}/v1/messages`, { method: 'POST', headers, agent }, (answer) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      // The caller measures when its request was taken, as it does with a server that answers before the model does.
      response.flushHeaders();
      answer.pipe(response);
    });
    upstream.on('error', () => response.destroy());
    upstream.end(body);
  });
});
function asMessages(sent) {
  const { content } = JSON.parse(sent.toString('utf8'));
  return JSON.stringify({ model: 'bench', stream: true, messages: [{ role: 'user', content }] });
}

server.keepAliveTimeout = 60_000;
server.listen({ host: '127.0.0.1', port: 0, backlog: 4096 }, () => {
  process.stdout.write(`listens on http://127.0.0.1:${server.address().port}\n`);
});
// Whoever started this process holds the other end of its input.
process.stdin.resume().on('end', () => process.exit(0));
