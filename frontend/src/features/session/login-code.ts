/** The code in a login address (`...#code=abc`), a fragment, or the bare code itself. */
export function codeFrom(text: string): string {
  const fragment = text.includes('#') ? text.slice(text.indexOf('#') + 1) : text;
  return new URLSearchParams(fragment).get('code') ?? fragment.trim();
}

export function codeFromFragment(fragment: string): string | null {
  return new URLSearchParams(fragment.replace(/^#/, '')).get('code');
}
