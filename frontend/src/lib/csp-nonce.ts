const PLACEHOLDER = '__CSP_NONCE__';

/** The nonce of this response, or an empty string where no policy is set (dev server, tests). */
export function cspNonce(): string {
  const meta = document.querySelector('meta[name="csp-nonce"]');
  const content = meta?.getAttribute('content') ?? '';
  return content === PLACEHOLDER ? '' : content;
}
