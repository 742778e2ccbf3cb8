// Where the rows of a long list stand when their heights differ: sums kept in a Fenwick tree, so that
// finding the row at an offset and changing one height both take O(log n).

export class Heights {
  readonly #values: Float64Array;
  readonly #tree: Float64Array;
  readonly count: number;

  constructor(heights: ArrayLike<number>) {
    this.count = heights.length;
    this.#values = Float64Array.from(heights);
    this.#tree = new Float64Array(this.count + 1);
    for (let index = 1; index <= this.count; index += 1) {
      this.#tree[index]! += this.#values[index - 1]!;
      const parent = index + (index & -index);
      if (parent <= this.count) this.#tree[parent]! += this.#tree[index]!;
    }
  }

  /** Returns the height of all rows together. */
  get total(): number {
    return this.offset(this.count);
  }

  get(index: number): number {
    return this.#values[index] ?? 0;
  }

  /** Sets one row's height and returns by how much it changed. */
  set(index: number, height: number): number {
    const change = height - this.get(index);
    if (change === 0 || index < 0 || index >= this.count) return 0;
    this.#values[index] = height;
    for (let at = index + 1; at <= this.count; at += at & -at) this.#tree[at]! += change;
    return change;
  }

  /** Returns the distance from the top of the list to the top of a row. */
  offset(index: number): number {
    let sum = 0;
    for (let at = Math.min(index, this.count); at > 0; at -= at & -at) sum += this.#tree[at]!;
    return sum;
  }

  /** Returns the row that covers an offset; the first or last when it lies outside. */
  indexAt(offset: number): number {
    if (this.count === 0 || offset <= 0) return 0;
    let at = 0;
    let rest = offset;
    for (let step = 1 << Math.floor(Math.log2(this.count)); step > 0; step >>= 1) {
      const next = at + step;
      if (next <= this.count && this.#tree[next]! <= rest) {
        at = next;
        rest -= this.#tree[next]!;
      }
    }
    return Math.min(at, this.count - 1);
  }

  /** Returns the rows to draw, from `first` up to but without `end`, with `overscan` pixels around. */
  range(top: number, viewport: number, overscan: number): { first: number; end: number } {
    if (this.count === 0) return { first: 0, end: 0 };
    const first = this.indexAt(top - overscan);
    const end = Math.min(this.count, this.indexAt(top + viewport + overscan) + 1);
    return { first, end };
  }
}
