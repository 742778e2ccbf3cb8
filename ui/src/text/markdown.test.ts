import { expect, test } from 'vitest';
import { toHtml } from './markdown';

test('markup in the source is text', () => {
  const html = toHtml('<img src=x onerror=alert(1)> <script>x</script>\n\n<div style="x">');
  expect(html).not.toMatch(/<(img|script|div)/);
});

test('links lead to the web and to mail only', () => {
  expect(toHtml('[a](https://example.org)')).toContain('href="https://example.org"');
  expect(toHtml('[a](https://example.org)')).toContain('rel="noopener noreferrer nofollow"');
  for (const bad of ['javascript:alert(1)', 'data:text/html,x', 'vbscript:x', '//evil', '/etc', '#/s/x', 'file:///x', 'blob:x']) {
    expect(toHtml(`[a](${bad})`)).not.toContain('href');
  }
});

test('nothing is loaded from elsewhere', () => {
  expect(toHtml('![cat](https://example.org/cat.png)')).not.toContain('<img');
  expect(toHtml('![cat](data:image/png;base64,AAAA)')).not.toContain('<img');
});

test('no style attribute is written', () => {
  const html = toHtml('| a | b |\n|:-:|--:|\n| 1 | 2 |');
  expect(html).not.toContain('style=');
  expect(html).toContain('class="align-right"');
});

test('tasks have boxes', () => {
  expect(toHtml('- [x] done\n- [ ] open')).toMatch(/box done.*\n.*class="box"/s);
});

test('code is escaped, whatever its language says', () => {
  expect(toHtml('```"><b>\n<b>&\n```')).not.toContain('<b>');
  expect(toHtml('```rust\nlet a = "<b>";\n```')).toContain('hljs-keyword');
});
