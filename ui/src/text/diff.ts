// The difference between two texts, line by line (Myers' algorithm, in linear memory per step).

export type DiffLine =
  | { kind: 'same'; text: string; before: number; after: number }
  | { kind: 'removed'; text: string; before: number }
  | { kind: 'added'; text: string; after: number };

/** Changes past this many are not looked for one by one: the middle is shown as replaced. */
const CHANGES_MAX = 2000;

/** Returns the lines of both texts in reading order, each with its line numbers, counted from 1. */
export function diffLines(before: string, after: string): DiffLine[] {
  const left = before.split('\n');
  const right = after.split('\n');
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let endLeft = left.length;
  let endRight = right.length;
  while (endLeft > start && endRight > start && left[endLeft - 1] === right[endRight - 1]) {
    endLeft -= 1;
    endRight -= 1;
  }
  const lines: DiffLine[] = [];
  const same = (index: number, other: number) =>
    lines.push({ kind: 'same', text: left[index]!, before: index + 1, after: other + 1 });
  for (let index = 0; index < start; index += 1) same(index, index);

  let x = start;
  let y = start;
  for (const step of editScript(left.slice(start, endLeft), right.slice(start, endRight))) {
    if (step === 'same') same(x++, y++);
    else if (step === 'removed') lines.push({ kind: 'removed', text: left[x]!, before: ++x });
    else lines.push({ kind: 'added', text: right[y]!, after: ++y });
  }
  while (x < left.length) same(x++, y++);
  return lines;
}

function editScript(left: string[], right: string[]): DiffLine['kind'][] {
  const n = left.length;
  const m = right.length;
  const replaced = (): DiffLine['kind'][] => [...new Array(n).fill('removed'), ...new Array(m).fill('added')];
  if (n === 0 || m === 0) return replaced();
  const size = n + m;
  const furthest = new Int32Array(2 * size + 2);
  const trail: Int32Array[] = [];
  let depth = 0;
  search: for (; depth <= size; depth += 1) {
    if (depth > CHANGES_MAX) return replaced();
    trail.push(furthest.slice(size - depth - 1 < 0 ? 0 : size - depth - 1, size + depth + 2));
    for (let k = -depth; k <= depth; k += 2) {
      const down = k === -depth || (k !== depth && furthest[size + k - 1]! < furthest[size + k + 1]!);
      let x = down ? furthest[size + k + 1]! : furthest[size + k - 1]! + 1;
      while (x < n && x - k < m && left[x] === right[x - k]) x += 1;
      furthest[size + k] = x;
      if (x >= n && x - k >= m) break search;
    }
  }
  // Walk back along the trail that reached the end.
  const script: DiffLine['kind'][] = [];
  let x = n;
  let y = m;
  for (; depth > 0; depth -= 1) {
    const row = trail[depth]!;
    const from = size - depth - 1 < 0 ? 0 : size - depth - 1;
    const at = (k: number) => row[size + k - from] ?? 0;
    const k = x - y;
    const down = k === -depth || (k !== depth && at(k - 1) < at(k + 1));
    const previousX = down ? at(k + 1) : at(k - 1);
    const previousY = previousX - (down ? k + 1 : k - 1);
    while (x > previousX && y > previousY && x > 0 && y > 0 && left[x - 1] === right[y - 1]) {
      script.push('same');
      x -= 1;
      y -= 1;
    }
    if (down) {
      script.push('added');
      y -= 1;
    } else {
      script.push('removed');
      x -= 1;
    }
  }
  while (x > 0) {
    script.push('same');
    x -= 1;
  }
  return script.reverse();
}

export type DiffHunk = { kind: 'lines'; lines: DiffLine[] } | { kind: 'fold'; lines: DiffLine[] };

/** Folds long runs of unchanged lines, keeping `context` lines around each change. */
export function hunks(lines: DiffLine[], context: number): DiffHunk[] {
  const keep = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.kind === 'same') return;
    for (let near = Math.max(0, index - context); near <= Math.min(lines.length - 1, index + context); near += 1) {
      keep[near] = 1;
    }
  });
  const result: DiffHunk[] = [];
  lines.forEach((line, index) => {
    const kind = keep[index] ? 'lines' : 'fold';
    const last = result.at(-1);
    if (last?.kind === kind) last.lines.push(line);
    else result.push({ kind, lines: [line] });
  });
  // Folding a line or two saves nothing.
  return result.map((hunk) => (hunk.kind === 'fold' && hunk.lines.length < 3 ? { ...hunk, kind: 'lines' } : hunk));
}
