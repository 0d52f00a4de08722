// The worker that parses Markdown which could hold up the page; the page ends it when it takes too long.
import { tokenize } from './data/parse-markdown.ts';

addEventListener('message', ({ data }: MessageEvent<string>) => {
  postMessage(tokenize(data));
});
postMessage('loaded');
