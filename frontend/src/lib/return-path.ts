/** A path of this site and nothing else: `//host`, `/\host` and full addresses are refused. */
export function safeReturnPath(candidate: string | undefined): string {
  if (candidate === undefined || !candidate.startsWith('/')) return '/';
  const url = parse(candidate);
  if (url === null || url.origin !== window.location.origin) return '/';
  return url.pathname.startsWith('/login') ? '/' : url.pathname + url.search + url.hash;
}

function parse(candidate: string): URL | null {
  try {
    return new URL(candidate, window.location.origin);
  } catch {
    return null;
  }
}
