// Runs before the first paint, as a file of its own (see vite/theme-script.ts).
(function () {
  let chosen = 'auto';
  try {
    chosen = window.localStorage.getItem('penstock-color-scheme') || 'auto';
  } catch {
    // Storage may be blocked; the system's preference is used then.
  }
  const isDark =
    chosen === 'dark' ||
    (chosen !== 'light' && window.matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.setAttribute('data-mantine-color-scheme', isDark ? 'dark' : 'light');
})();
