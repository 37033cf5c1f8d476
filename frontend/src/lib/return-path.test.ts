import { expect, test } from 'vitest';
import { safeReturnPath } from '@/lib/return-path';

test.each([
  ['/datasets/demo?filter=a#x', '/datasets/demo?filter=a#x'],
  [undefined, '/'],
  ['', '/'],
  ['https://evil.invalid/', '/'],
  ['//evil.invalid/', '/'],
  ['/\\evil.invalid/', '/'],
  ['/\t/evil.invalid', '/'],
  ['javascript:alert(1)', '/'],
  ['/login?return_to=/login', '/'],
])('%j leads to %j', (candidate, expected) => {
  expect(safeReturnPath(candidate)).toBe(expected);
});
