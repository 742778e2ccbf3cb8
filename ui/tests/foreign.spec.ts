// A page of another origin, in the browser of somebody who is signed in: it tries everything that a page can,
// reads nothing and changes nothing.

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test, type Page } from '@playwright/test';
import { MAIN, seeds } from './fixture';
import { type Gateway, start } from './start';

let gateway: Gateway;
let elsewhere: Server;

test.beforeAll(async () => {
  gateway = await start(seeds(Date.now()));
  elsewhere = createServer((_, answer) => {
    answer.setHeader('Content-Type', 'text/html; charset=utf-8');
    answer.end('<!doctype html><title>elsewhere</title><body></body>');
  });
  await new Promise<void>((listening) => elsewhere.listen(0, '127.0.0.1', listening));
});
test.afterAll(async () => {
  elsewhere?.close();
  await gateway?.stop();
});

const KEY = encodeURIComponent(MAIN);
const READABLE = ['/sessions', `/sessions/${KEY}`, `/sessions/${KEY}/history`, '/events', '/tokens', '/runs', '/metrics', '/openapi.json', '/agents', '/healthz', '/', '/app.js'];
const WRITABLE: [string, string, unknown][] = [
  ['POST', `/sessions/${KEY}/send`, { message: 'from elsewhere', timeoutSeconds: 0 }],
  ['PUT', `/sessions/${KEY}/plan`, { content: '# from elsewhere' }],
  ['POST', `/sessions/${KEY}/plan/review`, { revision: 1, decision: 'approve' }],
  ['POST', '/tokens', { scopes: ['admin'] }],
  ['POST', '/login', { code: 'x' }],
  ['POST', '/logout', {}],
  ['POST', '/attachments?name=a.txt', {}],
  ['POST', '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }],
];

interface Attempts {
  /** What was read, with how. */
  read: string[];
  /** How many were made. */
  count: number;
}

/** Runs in the page: returns what it could read. */
async function attack(given: { gateway: string; token: string; readable: string[]; writable: [string, string, unknown][] }): Promise<Attempts> {
  const read: string[] = [];
  let count = 0;
  const within = <T>(promise: Promise<T>, ms = 3_000) => Promise.race([promise, new Promise<undefined>((end) => setTimeout(end, ms))]);
  const attempt = async (how: string, work: () => Promise<unknown>) => {
    count += 1;
    try {
      const got = await within(work());
      if (got) read.push(`${how}: ${String(got).slice(0, 80)}`);
    } catch {
      // Refused by the browser or the gateway, as it should be.
    }
  };
  const modes: RequestMode[] = ['cors', 'no-cors', 'same-origin'];
  const credentials: RequestCredentials[] = ['include', 'omit'];
  for (const path of given.readable) {
    for (const mode of modes) {
      for (const credential of credentials) {
        await attempt(`fetch ${mode} ${credential} ${path}`, async () => (await fetch(given.gateway + path, { mode, credentials: credential })).text());
      }
    }
    await attempt(`fetch with the token ${path}`, async () => (await fetch(given.gateway + path, { headers: { Authorization: `Bearer ${given.token}` } })).text());
    await attempt(`XMLHttpRequest ${path}`, () => new Promise((done) => {
      const request = new XMLHttpRequest();
      request.open('GET', given.gateway + path);
      request.withCredentials = true;
      request.onloadend = () => done(request.responseText);
      request.send();
    }));
    const globals = () => Object.getOwnPropertyNames(window).filter((name) => !/^\d+$/.test(name)).length;
    const before = globals();
    for (const [tag, name] of [['script', 'src'], ['img', 'src'], ['link', 'href'], ['video', 'src'], ['embed', 'src'], ['object', 'data']] as const) {
      await attempt(`<${tag}> ${path}`, () => new Promise((done) => {
        const element = document.createElement(tag);
        // Whether it loads at all is told, too, but for those that load an error like anything else.
        element.onload = () => done(tag === 'embed' || tag === 'object' ? '' : 'loaded');
        element.onerror = () => done('');
        if (tag === 'link') element.setAttribute('rel', 'stylesheet');
        element.setAttribute(name, given.gateway + path);
        document.body.append(element);
        if (tag === 'video') setTimeout(() => done(''), 200);
        if (tag === 'embed' || tag === 'object') setTimeout(() => done(''), 300);
      }));
    }
    if (globals() > before) read.push(`<script> ${path} left something`);
    await attempt(`<iframe> ${path}`, () => new Promise((done) => {
      const frame = document.createElement('iframe');
      frame.src = given.gateway + path;
      frame.onload = () => {
        try {
          done(frame.contentDocument?.body?.innerText);
        } catch {
          done('');
        }
      };
      document.body.append(frame);
    }));
    await attempt(`import ${path}`, async () => Object.keys((await import(given.gateway + path)) as object).join() || 'loaded');
    await attempt(`EventSource ${path}`, () => new Promise((done) => {
      const source = new EventSource(`${given.gateway}${path}?follow=1`, { withCredentials: true });
      source.onopen = () => done('opened');
      source.onmessage = (event) => done(event.data);
      source.onerror = () => (source.close(), done(''));
    }));
  }
  for (const [method, path, body] of given.writable) {
    const text = JSON.stringify(body);
    for (const kind of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', 'application/json']) {
      for (const mode of modes) {
        for (const credential of credentials) {
          await attempt(`${method} ${kind} ${mode} ${credential} ${path}`, async () =>
            (await fetch(given.gateway + path, { method, mode, credentials: credential, body: text, headers: { 'Content-Type': kind } })).text(),
          );
        }
      }
    }
    await attempt(`beacon ${path}`, async () => void navigator.sendBeacon(given.gateway + path, text));
    for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
      await attempt(`<form> ${enctype} ${path}`, () => new Promise((done) => {
        const frame = document.createElement('iframe');
        frame.name = `target-${count}`;
        const form = document.createElement('form');
        Object.assign(form, { method: 'post', action: given.gateway + path, enctype, target: frame.name });
        const field = document.createElement('input');
        // As text, it is JSON.
        Object.assign(field, { name: `${text.slice(0, -1)}${text === '{}' ? '' : ','}"x":"`, value: '"}' });
        form.append(field);
        document.body.append(frame, form);
        let isSent = false;
        frame.onload = () => {
          if (!isSent) return;
          try {
            done(frame.contentDocument?.body?.innerText);
          } catch {
            done('');
          }
        };
        isSent = true;
        form.submit();
      }));
    }
  }
  for (const path of ['/ws', '/mcp', '/events']) {
    for (const protocols of [[], ['bearer', given.token]]) {
      await attempt(`WebSocket ${path} ${protocols.length}`, () => new Promise((done) => {
        const socket = new WebSocket(given.gateway.replace('http', 'ws') + path, protocols);
        socket.onopen = () => done('opened');
        socket.onerror = () => done('');
      }));
    }
  }
  return { read, count };
}

/** Everything that could have been changed. */
async function kept(page: Page): Promise<string> {
  const paths = ['/sessions', `/sessions/${KEY}/history`, '/tokens', '/runs', `/sessions/${KEY}/plan`, '/events?limit=1000'];
  const headers = { Authorization: `Bearer ${gateway.token}` };
  const answers = paths.map(async (path) => (await page.request.get(gateway.url + path, { headers })).text());
  return (await Promise.all(answers)).join('\n');
}

for (const host of ['127.0.0.1', 'localhost']) {
  test(`a page on another port of ${host} reads nothing and changes nothing`, async ({ page }) => {
    test.skip(test.info().project.name === 'phone', 'the same browser');
    test.setTimeout(180_000);
    // Signed in, as this browser's owner is.
    const answer = await page.request.post(`${gateway.url}/login`, { data: { token: gateway.token }, headers: { Origin: gateway.url } });
    expect(answer.ok()).toBe(true);
    const before = await kept(page);
    let withCookie = 0;
    page.on('request', async (request) => {
      if (!request.url().startsWith(gateway.url)) return;
      const headers = await request.allHeaders().catch(() => ({}) as Record<string, string>);
      if (headers['cookie']?.includes('sess=')) withCookie += 1;
    });
    await page.goto(`http://${host}:${(elsewhere.address() as AddressInfo).port}/`);
    // Whatever its frames do, the page stays.
    const attempts = await page.evaluate(attack, { gateway: gateway.url, token: gateway.token, readable: READABLE, writable: WRITABLE });
    expect(attempts.read).toEqual([]);
    expect(attempts.count).toBeGreaterThan(400);
    // The cookie goes to another port of the same host: it is not the cookie alone that protects.
    if (host === '127.0.0.1') expect(withCookie).toBeGreaterThan(20);
    else expect(withCookie).toBe(0);
    expect(await kept(page)).toBe(before);
    // Still signed in, and its own page reads.
    await page.goto(`${gateway.url}/`);
    await expect(page.locator('.session-row').first()).toBeVisible();
    const own = await page.evaluate(async (path) => (await fetch(path)).status, `/sessions/${KEY}`);
    expect(own).toBe(200);
  });
}

test('another window of the page tells its opener nothing', async ({ page, context }) => {
  test.skip(test.info().project.name === 'phone', 'the same browser');
  await page.request.post(`${gateway.url}/login`, { data: { token: gateway.token }, headers: { Origin: gateway.url } });
  await page.goto(`http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/`);
  const opened = context.waitForEvent('page');
  await page.evaluate((url) => void ((window as unknown as { other: Window | null }).other = open(url)), `${gateway.url}/#/s/${MAIN}`);
  const other = await opened;
  await expect(other.locator('.transcript').first()).toBeVisible();
  const told = await page.evaluate(() => {
    const { other } = window as unknown as { other: Window };
    try {
      return [other.document.body.innerText, other.location.href].join();
    } catch {
      return '';
    }
  });
  expect(told).toBe('');
});
