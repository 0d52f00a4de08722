// Writes the made-up decks of examples/pitchdeck-eval: `node scripts/gen-decks.mjs [FOLDER]`. The same bytes each time.
import fs from 'node:fs';
import path from 'node:path';

/** Name, and the lines of each page. */
const DECKS = {
  aurora: [
    ['Aurora', 'Heat pumps that rent themselves'],
    ['Problem', 'Landlords do not invest,', 'tenants pay the bill.'],
    ['Traction', '41 buildings, 11 months', 'churn 0'],
    ['Team', 'Two HVAC engineers,', 'one banker'],
  ],
  birchwood: [
    ['Birchwood', 'An app for everybody'],
    ['Problem', 'People have phones.'],
    ['Traction', 'A landing page'],
    ['Team', 'Hiring'],
  ],
  corvid: [
    ['Corvid', 'Parts from scrap aircraft'],
    ['Problem', 'A grounded plane costs', '90,000 a day.'],
    ['Traction', '3 airlines, 212 parts sold'],
    ['Team', 'Former maintenance leads'],
  ],
};
const FIRST_PAGE = 4;

/** A PDF with a page for each list of lines. */
function pdf(pages) {
  const kids = pages.map((_, i) => `${FIRST_PAGE + 2 * i + 1} 0 R`);
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Count ${pages.length} /Kids [${kids.join(' ')}] >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
  ];
  for (const [i, lines] of pages.entries()) {
    const shown = lines.map((line) => `(${line.replace(/[\\()]/g, '\\$&')}) Tj T*\n`).join('');
    const text = `BT /F1 28 Tf 60 440 Td 36 TL\n${shown}ET`;
    const content = FIRST_PAGE + 2 * i;
    objects.push(
      `<< /Length ${text.length} >>\nstream\n${text}\nendstream`,
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 960 540] /Contents ${content} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
    );
  }
  let body = '%PDF-1.4\n';
  const places = [];
  for (const [i, object] of objects.entries()) {
    places.push(`${String(body.length).padStart(10, '0')} 00000 n \n`);
    body += `${i + 1} 0 obj\n${object}\nendobj\n`;
  }
  const size = objects.length + 1;
  const table = `xref\n0 ${size}\n0000000000 65535 f \n${places.join('')}`;
  return `${body}${table}trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${body.length}\n%%EOF\n`;
}

const folder = process.argv[2] ?? path.join(import.meta.dirname, '../examples/pitchdeck-eval/pipeline');
for (const [name, pages] of Object.entries(DECKS)) fs.writeFileSync(path.join(folder, `${name}.pdf`), pdf(pages));
