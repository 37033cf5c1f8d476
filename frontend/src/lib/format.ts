const integers = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

export function formatCount(value: number): string {
  return integers.format(value);
}

/** `1 sample`, `3,000 samples`. */
export function formatQuantity(count: number, noun: string): string {
  return `${formatCount(count)} ${count === 1 ? noun : `${noun}s`}`;
}

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < BYTE_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${BYTE_UNITS[unit] ?? 'B'}`;
}

export function formatMegabytesPerSecond(bytesPerSecond: number): string {
  const megabytes = bytesPerSecond / 1e6;
  return megabytes >= 100 ? formatCount(megabytes) : megabytes.toFixed(1);
}

export function formatShare(share: number, digits = 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

export function formatRate(perSecond: number): string {
  const isWhole = perSecond >= 100 || Number.isInteger(perSecond);
  return isWhole ? formatCount(perSecond) : perSecond.toFixed(1);
}

export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${String(whole)} s`;
  if (whole < 3600) return `${String(Math.floor(whole / 60))} min ${String(whole % 60)} s`;
  const hours = Math.floor(whole / 3600);
  return `${String(hours)} h ${String(Math.floor((whole % 3600) / 60))} min`;
}

export function formatAgo(time: string, now: number = Date.now()): string {
  const seconds = (now - Date.parse(time)) / 1000;
  if (Number.isNaN(seconds)) return 'unknown';
  if (seconds < 10) return 'just now';
  if (seconds < 60) return `${String(Math.round(seconds))} s ago`;
  if (seconds < 3600) return `${String(Math.floor(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${String(Math.floor(seconds / 3600))} h ago`;
  const days = Math.floor(seconds / 86_400);
  if (days < 30) return `${String(days)} d ago`;
  return formatDay(time);
}

export function formatDay(time: string): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** Local time to the second, with the zone, for titles and tables. */
export function formatTime(time: string): string {
  return new Date(time).toLocaleString('en-GB', {
    dateStyle: 'medium',
    timeStyle: 'medium',
  });
}

export function formatClock(time: string): string {
  return new Date(time).toLocaleTimeString('en-GB');
}

/** `b3:9f2c41ab...` becomes `9f2c41ab`: enough to recognise, copied in full. */
export function shortDigest(digest: string): string {
  return digest.replace(/^b3:/, '').slice(0, 8);
}

export function formatValue(value: unknown): string {
  if (value === null || value === undefined || value === '') return '–';
  if (typeof value === 'number') {
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  }
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (Array.isArray(value)) return value.map(formatValue).join(', ') || '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
