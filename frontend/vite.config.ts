import react from '@vitejs/plugin-react';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { strictHtml } from './vite/strict-html.ts';
import { themeScript } from './vite/theme-script.ts';

const apiUrl = process.env.PENSTOCK_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [react(), themeScript(), strictHtml()],
  resolve: { alias: { '@': fileURLToPath(new URL('./src', import.meta.url)) } },
  build: {
    // Everything stays a file of its own: the policy allows no data: scripts or styles.
    assetsInlineLimit: 0,
    sourcemap: false,
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
  },
  server: { host: '127.0.0.1', port: 5173, proxy: { '/api': { target: apiUrl } } },
  preview: { host: '127.0.0.1', port: 4173, proxy: { '/api': { target: apiUrl } } },
  test: {
    environment: 'jsdom',
    environmentOptions: { jsdom: { url: 'http://127.0.0.1:8080/' } },
    setupFiles: ['src/testing/setup.ts'],
    include: ['{src,vite}/**/*.test.{ts,tsx}'],
    restoreMocks: true,
    testTimeout: 60_000,
    // As with pytest: a machine that stalls for seconds fails tests that wait through no fault of the code.
    retry: process.env.CI ? 1 : 0,
    env: { DEBUG_PRINT_LIMIT: '0' },
    maxWorkers: 2,
    // The page's modules are loaded once a worker, not once a file: the setup resets what they hold.
    isolate: false,
  },
});
