import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Plugin } from 'vite';

const SOURCE = new URL('../src/app/theme-script.js', import.meta.url);
const DEV_PATH = '/theme-script.js';

/**
 * Serves the script that chooses the colour scheme before the first paint as a classic external
 * file: the content security policy allows no inline script, and a module would run too late.
 */
export function themeScript(): Plugin {
  let isBuild = false;
  const source = () => readFileSync(SOURCE, 'utf8');
  return {
    name: 'penstock-theme-script',
    configResolved(config) {
      isBuild = config.command === 'build';
    },
    configureServer(server) {
      server.middlewares.use(DEV_PATH, (_request, response) => {
        response.setHeader('Content-Type', 'text/javascript');
        response.end(source());
      });
    },
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: buildName(source()), source: source() });
    },
    transformIndexHtml() {
      const src = isBuild ? `/${buildName(source())}` : DEV_PATH;
      return [{ tag: 'script', attrs: { src }, injectTo: 'head' }];
    },
  };
}

function buildName(text: string): string {
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 8);
  return `assets/theme-${hash}.js`;
}
