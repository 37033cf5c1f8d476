import js from '@eslint/js';
import importX from 'eslint-plugin-import-x';
import { createTypeScriptImportResolver } from 'eslint-import-resolver-typescript';
import reactHooks from 'eslint-plugin-react-hooks';
import { readdirSync } from 'node:fs';
import { URL } from 'node:url';
import tseslint from 'typescript-eslint';

const features = readdirSync(new URL('./src/features', import.meta.url));

// app -> features -> shared; a feature knows no other feature, shared code knows none of them.
const zones = [
  ...features.map((feature) => ({
    target: `./src/features/${feature}`,
    from: './src/features',
    except: [`./${feature}`],
    message: 'A feature does not import another one: compose them in src/app.',
  })),
  { target: './src/features', from: './src/app', message: 'Features do not know the app.' },
  {
    target: ['./src/components', './src/lib', './src/config', './src/api'],
    from: ['./src/app', './src/features'],
    message: 'Shared code does not know features.',
  },
];

const generatedClient = {
  patterns: [
    {
      group: ['@/api/generated', '@/api/generated/*'],
      message: 'Only features/*/api and lib/api-client.ts use the generated client.',
    },
  ],
};

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'src/api/generated', '*.cjs'] },
  js.configs.recommended,
  ...tseslint.configs.strict,
  reactHooks.configs.flat['recommended-latest'],
  {
    plugins: { 'import-x': importX },
    settings: { 'import-x/resolver-next': [createTypeScriptImportResolver()] },
    rules: {
      'import-x/no-restricted-paths': ['error', { zones }],
      'import-x/no-cycle': ['error', { maxDepth: 8 }],
      'import-x/no-duplicates': 'error',
      'no-restricted-imports': ['error', generatedClient],
      'no-console': 'error',
      'max-lines': ['error', { max: 250, skipBlankLines: true, skipComments: true }],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      '@typescript-eslint/consistent-type-imports': 'error',
    },
  },
  {
    files: [
      'src/features/*/api/**',
      'src/lib/api-client.ts',
      'src/lib/problem.ts',
      'src/testing/**',
    ],
    rules: { 'no-restricted-imports': 'off' },
  },
  {
    files: ['src/testing/**', '**/*.test.{ts,tsx}'],
    rules: { 'max-lines': 'off' },
  },
  {
    files: ['src/app/theme-script.js'],
    languageOptions: {
      sourceType: 'script',
      globals: { window: 'readonly', document: 'readonly' },
    },
  },
);
