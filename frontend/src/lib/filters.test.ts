import { expect, test } from 'vitest';
import { buildFilter, togglePick } from '@/lib/filters';

test.each([
  ['', {}, undefined],
  ['  ', {}, undefined],
  ["site = 'A'", {}, "site = 'A'"],
  ['', { tumor: ['yes'] }, "tumor = 'yes'"],
  ['', { tumor: ['yes', 'no'] }, "tumor IN ('yes', 'no')"],
  ['a = 1 OR b = 2', { tumor: ['yes'] }, "(a = 1 OR b = 2) AND tumor = 'yes'"],
  ['', { note: [null] }, 'note IS NULL'],
  ['', { note: ['x', null] }, "(note = 'x' OR note IS NULL)"],
  ['', { name: ["O'Brien"] }, "name = 'O''Brien'"],
  ['', { age: [61], is_old: [true] }, 'age = 61 AND is_old = true'],
])('text %j and picks %j become %j', (text, picks, expected) => {
  expect(buildFilter(text, picks)).toBe(expected);
});

test('toggling adds a value, then takes it and its column away', () => {
  const once = togglePick({}, 'site', 'A');
  expect(once).toEqual({ site: ['A'] });
  expect(togglePick(once, 'site', 'B')).toEqual({ site: ['A', 'B'] });
  expect(togglePick(once, 'site', 'A')).toEqual({});
});
