import { defineConfig } from '@hey-api/openapi-ts';

export default defineConfig({
  // OPENAPI_FILE lets a check generate from another file without touching the committed one.
  input: process.env.OPENAPI_FILE ?? '../openapi.json',
  output: { path: process.env.OPENAPI_OUTPUT ?? 'src/api/generated', postProcess: [] },
  plugins: ['@hey-api/client-fetch', '@hey-api/typescript', '@hey-api/sdk'],
});
