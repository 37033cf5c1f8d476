const TILE_PIXELS = 160;
const GAP_PIXELS = 8;
const CAPTION_PIXELS = 26;
// Browsers cap an element's height at 33,554,428 px; above that rows would lie on each other.
const MAX_HEIGHT_PIXELS = 33_000_000;

export interface GridShape {
  columns: number;
  rows: number;
  tileHeight: number;
  rowHeight: number;
  /** How many samples can be reached by scrolling. */
  reachable: number;
}

/** As many columns of at least 160 px as fit; tiles share what is left over. */
export function gridShape(width: number, total: number): GridShape {
  const usable = width > 0 ? width : 1200;
  const columns = Math.max(1, Math.floor((usable + GAP_PIXELS) / (TILE_PIXELS + GAP_PIXELS)));
  const tileWidth = (usable - GAP_PIXELS * (columns - 1)) / columns;
  const tileHeight = Math.floor(tileWidth) + CAPTION_PIXELS;
  const rowHeight = tileHeight + GAP_PIXELS;
  const rows = Math.min(Math.ceil(total / columns), Math.floor(MAX_HEIGHT_PIXELS / rowHeight));
  return { columns, rows, tileHeight, rowHeight, reachable: Math.min(total, rows * columns) };
}

/** Where a key leads from tile `current`, or null when the key is not for the grid. */
export function nextIndex(
  key: string,
  current: number,
  total: number,
  columns: number,
): number | null {
  const steps: Record<string, number> = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
    PageDown: columns * 4,
    PageUp: -columns * 4,
  };
  if (key === 'Home') return 0;
  if (key === 'End') return total - 1;
  const step = steps[key];
  if (step === undefined) return null;
  const target = current + step;
  if (target < 0 || target >= total) {
    return Math.abs(step) === 1 ? current : Math.max(0, Math.min(total - 1, target));
  }
  return target;
}
