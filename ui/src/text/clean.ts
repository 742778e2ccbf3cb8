// Making text safe to show on one line: nothing invisible, nothing that turns the line around.

// Control characters, and those that change the direction of the text or hide in it.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

/** Returns a text for a title: white space is one space, control characters are shown as pictures or removed. */
export function oneLine(text: string): string {
  return text
    .replace(/[\t\r\n ]+/g, ' ')
    .replace(UNSEEN, (found) => {
      const code = found.codePointAt(0)!;
      if (code < 0x20) return String.fromCodePoint(0x2400 + code);
      if (code === 0x7f) return '\u2421';
      return '';
    })
    .trim();
}

/** Returns a longer text with its lines kept, and control characters shown as pictures or removed. */
export function manyLines(text: string): string {
  return text.split('\n').map((line) => line.replace(/\t/g, '  ').replace(/\r$/, '')).map((line) =>
    line.replace(UNSEEN, (found) => {
      const code = found.codePointAt(0)!;
      if (code < 0x20) return String.fromCodePoint(0x2400 + code);
      return code === 0x7f ? '\u2421' : '';
    }),
  ).join('\n');
}
