import { expect, test } from 'vitest';
import {
  formatAgo,
  formatBytes,
  formatDuration,
  formatMegabytesPerSecond,
  formatQuantity,
  formatRate,
  formatShare,
  formatValue,
  shortDigest,
} from '@/lib/format';

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.0 kB'],
  [18_432, '18.4 kB'],
  [999_600, '1.0 MB'],
  [57_132_000, '57.1 MB'],
  [118_000_000_000, '118 GB'],
])('%d bytes are %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.each([
  [0, '0 s'],
  [59.6, '1 min 0 s'],
  [125, '2 min 5 s'],
  [7260, '2 h 1 min'],
])('%d seconds are %s', (seconds, text) => {
  expect(formatDuration(seconds)).toBe(text);
});

test('counts have their noun in the right number', () => {
  expect(formatQuantity(1, 'sample')).toBe('1 sample');
  expect(formatQuantity(3000, 'sample')).toBe('3,000 samples');
});

test('rates keep a decimal only while it says something', () => {
  expect([0, 3.14159, 99.96, 9420.4].map(formatRate)).toEqual(['0', '3.1', '100.0', '9,420']);
  expect(formatMegabytesPerSecond(118_400_000)).toBe('118');
  expect(formatMegabytesPerSecond(41_230_000)).toBe('41.2');
  expect(formatShare(0.1234)).toBe('12 %');
  expect(formatShare(0.70333, 1)).toBe('70.3 %');
});

test('ages count from now and end in a day', () => {
  const now = Date.parse('2026-11-16T12:00:00Z');
  expect(formatAgo('2026-11-16T11:59:55Z', now)).toBe('just now');
  expect(formatAgo('2026-11-16T11:59:20Z', now)).toBe('40 s ago');
  expect(formatAgo('2026-11-16T09:00:00Z', now)).toBe('3 h ago');
  expect(formatAgo('2026-01-02T00:00:00Z', now)).toBe('2026-01-02');
  expect(formatAgo('nonsense', now)).toBe('unknown');
});

test('values of any kind can be read', () => {
  expect([null, '', 0, 0.1 + 0.2, true, ['a', null], { a: 1 }].map(formatValue)).toEqual([
    '–',
    '–',
    '0',
    '0.3',
    'yes',
    'a, –',
    '{"a":1}',
  ]);
  expect(shortDigest(`b3:${'9f2c41ab'.repeat(8)}`)).toBe('9f2c41ab');
});
