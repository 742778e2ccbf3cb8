// Builds the page into dist/ with fixed names, so that the binary can embed the files as they are.
import { defineConfig } from 'vitest/config';

export default defineConfig({
  define: { __VERSION__: JSON.stringify('1') },
  base: './',
  build: {
    target: 'es2022',
    // The first with light-dark(), which says each colour once for both themes.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    outDir: 'dist',
    assetsDir: '.',
    sourcemap: false,
    cssCodeSplit: false,
    modulePreload: false,
    // Nothing becomes a data: address: the page may only load what the server names.
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        chunkFileNames: 'app-[name].js',
        assetFileNames: (asset) => (asset.names[0]?.endsWith('.css') ? 'app.css' : '[name][extname]'),
      },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ['/ws', '/login', '/logout', '/attachments', '/sessions', '/runs', '/tokens', '/work'].map((path) => [
        path,
        { target: process.env['SESS_GATEWAY'] ?? 'http://127.0.0.1:4747', ws: path === '/ws' },
      ]),
    ),
  },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
