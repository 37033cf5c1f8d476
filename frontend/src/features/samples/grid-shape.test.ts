import { expect, test } from 'vitest';
import { gridShape, nextIndex } from '@/features/samples/grid-shape';

test('tiles are at least 160 px wide and fill the width', () => {
  expect(gridShape(1000, 3000)).toMatchObject({
    columns: 6,
    rows: 500,
    tileHeight: 186,
    reachable: 3000,
  });
  expect(gridShape(120, 3)).toMatchObject({ columns: 1, rows: 3 });
  expect(gridShape(1000, 13).rows).toBe(3);
});

test('the height stays below what browsers can show', () => {
  const { rows, rowHeight, reachable } = gridShape(1000, 10_000_000);
  expect(rows * rowHeight).toBeLessThanOrEqual(33_000_000);
  expect(reachable).toBe(rows * 6);
});

test.each([
  ['ArrowRight', 0, 1],
  ['ArrowLeft', 0, 0],
  ['ArrowRight', 99, 99],
  ['ArrowDown', 3, 13],
  ['ArrowDown', 95, 99],
  ['ArrowUp', 5, 0],
  ['PageDown', 10, 50],
  ['Home', 50, 0],
  ['End', 50, 99],
  ['a', 50, null],
])('%s at %d leads to %j', (key, from, to) => {
  expect(nextIndex(key, from, 100, 10)).toBe(to);
});
