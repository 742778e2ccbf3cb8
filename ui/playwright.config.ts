// Tests of the page in a real browser, against a real gateway: `SESS=…/sess npm run e2e`.
import { defineConfig } from '@playwright/test';

const launchOptions = {
  executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync',
  ],
};

export default defineConfig({
  testDir: 'tests',
  outputDir: 'test-results',
  workers: 1,
  // A shared machine may be slow once; what fails every time fails.
  retries: process.env['CI'] ? 2 : 0,
  // Looking for barriers takes seconds a view where other programs want the processor, too.
  timeout: 90_000,
  expect: { timeout: 15_000 },
  reporter: [['list']],
  use: { launchOptions, locale: 'en-GB', trace: 'off', reducedMotion: 'reduce' },
  projects: [
    { name: 'desktop', use: { viewport: { width: 1280, height: 800 } } },
    { name: 'phone', use: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } },
  ],
});
