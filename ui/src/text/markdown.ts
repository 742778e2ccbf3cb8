// Markdown to HTML. HTML in the source is shown, never used; links lead only where links should; nothing is
// loaded from elsewhere, so images become links.

import MarkdownIt from 'markdown-it';
import { highlight } from './highlight';

const markdown = new MarkdownIt({
  html: false,
  linkify: true,
  breaks: false,
  highlight: (code, language) => highlight(code, language),
});

markdown.validateLink = (address) => /^(https?:\/\/|mailto:)/i.test(address.trim());
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

const escape = markdown.utils.escapeHtml;

markdown.renderer.rules.link_open = (tokens, index, options, _env, self) => {
  tokens[index]!.attrSet('target', '_blank');
  tokens[index]!.attrSet('rel', 'noopener noreferrer nofollow');
  return self.renderToken(tokens, index, options);
};

markdown.renderer.rules.image = (tokens, index) => {
  const token = tokens[index]!;
  const address = String(token.attrGet('src') ?? '');
  const name = escape(token.content || address);
  return `<a class="image-link" href="${escape(address)}" target="_blank" rel="noopener noreferrer nofollow">${name}</a>`;
};

const codeBlock = (code: string, language: string) => {
  const body = highlight(code.replace(/\n$/, ''), language);
  return (
    `<div class="code"><div class="code-head"><span>${escape(language || 'text')}</span>` +
    `<button type="button" class="quiet" data-copy>Copy</button></div>` +
    `<pre tabindex="0"><code>${body}</code></pre></div>`
  );
};

markdown.renderer.rules.fence = (tokens, index) => {
  const token = tokens[index]!;
  return codeBlock(token.content, token.info.trim().split(/\s+/)[0] ?? '');
};
markdown.renderer.rules.code_block = (tokens, index) => codeBlock(tokens[index]!.content, '');

// Style attributes are not allowed on this page, so a column's alignment becomes a class.
for (const name of ['th_open', 'td_open'] as const) {
  markdown.renderer.rules[name] = (tokens, index, options, _env, self) => {
    const token = tokens[index]!;
    const align = /text-align:(\w+)/.exec(String(token.attrGet('style') ?? ''))?.[1];
    token.attrs = align ? [['class', `align-${align}`]] : null;
    return self.renderToken(tokens, index, options);
  };
}
markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>';
markdown.renderer.rules.table_close = () => '</table></div>';

// `- [ ]` and `- [x]` at the start of a list item, as plans use them.
markdown.core.ruler.after('inline', 'tasks', (state) => {
  state.tokens.forEach((token, index) => {
    if (token.type !== 'inline' || state.tokens[index - 2]?.type !== 'list_item_open') return;
    const first = token.children?.[0];
    const mark = first?.type === 'text' ? /^\[([ xX])\] /.exec(first.content) : null;
    if (!first || !mark) return;
    first.content = first.content.slice(4);
    const box = new state.Token('task', '', 0);
    box.info = mark[1] === ' ' ? '' : 'done';
    token.children!.unshift(box);
    state.tokens[index - 2]!.attrJoin('class', 'task');
  });
});
markdown.renderer.rules['task'] = (tokens, index) => {
  const done = tokens[index]!.info === 'done';
  return `<span class="box${done ? ' done' : ''}" role="img" aria-label="${done ? 'done' : 'to do'}"></span>`;
};

const CACHE_MAX = 600;
const cache = new Map<string, string>();

/** Returns the HTML of a Markdown text. */
export function toHtml(text: string): string {
  const cached = cache.get(text);
  if (cached !== undefined) return cached;
  const html = markdown.render(text);
  if (cache.size >= CACHE_MAX) cache.delete(cache.keys().next().value!);
  cache.set(text, html);
  return html;
}

/** The same, for text that is still growing: nothing is kept. */
export function toHtmlOnce(text: string): string {
  return markdown.render(text);
}
