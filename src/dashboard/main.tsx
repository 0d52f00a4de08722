// The dashboard's entry: draws the page into the document (17 §3).
import { render } from 'preact';
import { App } from './shell/app.tsx';
import { applyTheme, readTheme } from './shell/kept.ts';

applyTheme(readTheme());
const root = document.getElementById('app');
if (root !== null) render(<App />, root);
