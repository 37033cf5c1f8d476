import type { Plugin } from 'vite';

/** What the content security policy would refuse in a page: every finding, in the page's own words. */
export function inlineCode(html: string): string[] {
  const scripts = html.match(/<script\b(?![^>]*\bsrc=)[^>]*>/gi) ?? [];
  const styles = html.match(/<style\b[^>]*>/gi) ?? [];
  const attributes = html.match(/<[^>]+\s(?:style|on[a-z]+)\s*=[^>]*>/gi) ?? [];
  const addresses = html.match(/(?:src|href)="(?:data|javascript|https?):[^"]*"/gi) ?? [];
  return [...scripts, ...styles, ...attributes, ...addresses];
}

/** Fails the build when index.html holds something that the policy blocks in the browser. */
export function strictHtml(): Plugin {
  return {
    name: 'penstock-strict-html',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(html) {
        const found = inlineCode(html);
        if (found.length > 0) throw new Error(`index.html has inline code: ${found.join(' ')}`);
        if (!html.includes('name="csp-nonce" content="__CSP_NONCE__"')) {
          throw new Error('index.html has lost the place for the nonce of the content policy');
        }
      },
    },
  };
}
