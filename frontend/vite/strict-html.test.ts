import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { inlineCode } from './strict-html';

test('our own page has no inline script, style or handler', () => {
  expect(inlineCode(readFileSync('index.html', 'utf8'))).toEqual([]);
});

test.each([
  '<script>alert(1)</script>',
  '<script type="module">import "x"</script>',
  '<style>body{}</style>',
  '<div style="color:red"></div>',
  '<body onload="x()">',
  '<script src="https://cdn.invalid/x.js"></script>',
  '<link rel="icon" href="data:image/svg+xml,x">',
])('%s is found', (html) => {
  expect(inlineCode(html)).toHaveLength(1);
});

test('external files of ours pass', () => {
  const html =
    '<script type="module" crossorigin src="/assets/a.js"></script><link href="/assets/a.css">';
  expect(inlineCode(html)).toEqual([]);
});
