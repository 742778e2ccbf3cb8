// A long list of which only what can be seen is in the page. Rows may differ in height: heights are
// estimated, measured when drawn, and what the reader looks at stays where it is meanwhile.

import { Component, type ComponentChildren, createRef, type HTMLAttributes, type JSX } from 'preact';
import { Heights } from './heights';

const OVERSCAN = 600;
/** Closer than this to the end counts as being there. */
const END_SLACK = 40;

export interface Props<T> {
  items: readonly T[];
  /** Where whoever made the list finds it, to scroll it. */
  handle?: { current: VirtualList<T> | null };
  keyOf: (item: T) => string;
  /** A guess at an item's height; when `fixed`, the truth. */
  estimate: (item: T, width: number) => number;
  children: (item: T, index: number) => ComponentChildren;
  fixed?: boolean;
  /** Whether the list stays at its end while it grows there. */
  follow?: boolean;
  /** Shown first: the end, unless this key is given. */
  startAt?: string | undefined;
  onNearStart?: () => void;
  onNearEnd?: () => void;
  onFollowing?: (following: boolean) => void;
  scrollerProps?: HTMLAttributes<HTMLDivElement>;
  windowProps?: HTMLAttributes<HTMLDivElement>;
  /** Attributes of the element around each row. */
  rowProps?: (item: T, index: number) => HTMLAttributes<HTMLDivElement>;
  /** Stands above the first row and scrolls with it. */
  header?: ComponentChildren;
}

interface Anchor {
  key: string;
  /** How far the top of the row is above the top of the viewport. */
  delta: number;
}

export class VirtualList<T> extends Component<Props<T>> {
  private readonly scroller = createRef<HTMLDivElement>();
  private readonly canvas = createRef<HTMLDivElement>();
  private readonly window = createRef<HTMLDivElement>();
  private readonly measured = new Map<string, number>();
  private heights = new Heights([]);
  private indices = new Map<string, number>();
  private items: readonly T[] | undefined;
  private anchors: Anchor[] = [];
  private following = false;
  private top = 0;
  private viewport = 800;
  private width = 800;
  private first = 0;
  private end = 0;
  private resized: ResizeObserver | undefined;
  private placed = false;

  override componentDidMount(): void {
    if (this.props.handle) this.props.handle.current = this;
    const scroller = this.scroller.current!;
    this.viewport = scroller.clientHeight;
    this.width = scroller.clientWidth;
    this.resized = new ResizeObserver(() => {
      this.viewport = scroller.clientHeight;
      this.width = scroller.clientWidth;
      this.settle();
    });
    this.resized.observe(scroller);
    this.resized.observe(this.window.current!);
    this.following = Boolean(this.props.follow) && this.props.startAt === undefined;
    this.settle();
  }

  override componentDidUpdate(): void {
    this.settle();
  }

  override componentWillUnmount(): void {
    this.resized?.disconnect();
    if (this.props.handle?.current === this) this.props.handle.current = null;
  }

  /** Shows a row, `gap` pixels below the top of the viewport. */
  scrollTo(key: string, gap = 80): boolean {
    if (!this.indices.has(key)) return false;
    this.setFollowing(false);
    this.anchors = [{ key, delta: -gap }];
    this.settle();
    return true;
  }

  scrollToEnd(): void {
    this.setFollowing(true);
    this.settle();
  }

  /** Shows a row and gives the focus to what `selector` finds in it. */
  focus(index: number, selector: string): void {
    const item = this.props.items[index];
    if (item === undefined) return;
    const key = this.props.keyOf(item);
    this.reveal(index);
    // Found by its key once it is drawn: by then its place may be another.
    this.setState({}, () => {
      const row = this.window.current?.querySelector(`[data-index="${this.indices.get(key)}"]`);
      row?.querySelector<HTMLElement>(selector)?.focus({ preventScroll: true });
    });
  }

  /** Makes sure a row can be seen, moving as little as possible. */
  private reveal(index: number): void {
    const scroller = this.scroller.current;
    if (!scroller) return;
    const above = this.heights.offset(index);
    const below = above + this.heights.get(index);
    const base = this.base();
    if (above + base < scroller.scrollTop) scroller.scrollTop = above + base - 8;
    else if (below + base > scroller.scrollTop + this.viewport) scroller.scrollTop = below + base - this.viewport + 8;
    this.scrolled();
  }

  /** Returns the row at the top of the viewport. */
  get topIndex(): number {
    return this.heights.indexAt(this.top - this.base() + 24);
  }

  /** Returns the row at the bottom of the viewport. */
  get bottomIndex(): number {
    return this.heights.indexAt(this.top - this.base() + this.viewport - 24);
  }

  get isFollowing(): boolean {
    return this.following;
  }

  private base(): number {
    return this.canvas.current?.offsetTop ?? 0;
  }

  private setFollowing(following: boolean): void {
    if (this.following === following) return;
    this.following = following;
    this.props.onFollowing?.(following);
  }

  private rebuild(): void {
    const { items, keyOf, estimate, fixed } = this.props;
    if (items === this.items) return;
    this.items = items;
    this.indices = new Map();
    const heights = new Float64Array(items.length);
    items.forEach((item, index) => {
      const key = keyOf(item);
      this.indices.set(key, index);
      heights[index] = (fixed ? undefined : this.measured.get(key)) ?? estimate(item, this.width);
    });
    this.heights = new Heights(heights);
  }

  /** Measures what is drawn, puts it where it belongs, and draws again if that shows other rows. */
  private settle(): void {
    const scroller = this.scroller.current;
    const element = this.window.current;
    if (!scroller || !element || scroller.clientHeight === 0) return;
    if (!this.props.fixed) {
      for (const child of element.children) {
        const index = Number((child as HTMLElement).dataset['index']);
        const item = this.props.items[index];
        if (item === undefined) continue;
        const height = child.getBoundingClientRect().height;
        this.measured.set(this.props.keyOf(item), height);
        this.heights.set(index, height);
      }
    }
    if (!this.placed && this.props.items.length > 0) {
      this.placed = true;
      const start = this.props.startAt;
      if (start !== undefined && this.indices.has(start)) this.anchors = [{ key: start, delta: -80 }];
    }
    this.canvas.current!.style.height = `${this.heights.total}px`;
    const target = this.target();
    if (target !== undefined && Math.abs(scroller.scrollTop - target) >= 1) scroller.scrollTop = target;
    this.top = scroller.scrollTop;
    element.style.transform = `translateY(${this.heights.offset(this.first)}px)`;
    this.redraw();
    this.near();
  }

  /** Returns where the viewport should be so that what is read does not move. */
  private target(): number | undefined {
    const base = this.base();
    if (this.following) return Math.max(0, base + this.heights.total - this.viewport + this.tail());
    for (const anchor of this.anchors) {
      const index = this.indices.get(anchor.key);
      if (index !== undefined) return Math.max(0, base + this.heights.offset(index) + anchor.delta);
    }
    return undefined;
  }

  /** The padding below the last row. */
  private tail(): number {
    const scroller = this.scroller.current!;
    return Math.max(0, scroller.scrollHeight - this.base() - this.canvas.current!.offsetHeight);
  }

  private readonly scrolled = () => {
    const scroller = this.scroller.current;
    // The view may have been left while a scroll was under way.
    if (!scroller) return;
    if (scroller.scrollTop === this.top && this.anchors.length) return;
    const up = scroller.scrollTop < this.top;
    this.top = scroller.scrollTop;
    if (this.props.follow) {
      // As high as it is now: when it grew, the browser moved it up, and nobody scrolled.
      const left = scroller.scrollHeight - this.top - scroller.clientHeight;
      if (left < END_SLACK && !up) this.setFollowing(true);
      else if (up && left > 2) this.setFollowing(false);
    }
    this.remember();
    this.redraw();
    this.near();
  };

  private remember(): void {
    const at = this.top - this.base();
    // At the very top of a list, new rows above push the others down.
    if (at <= 0 && !this.props.follow) {
      this.anchors = [];
      return;
    }
    const first = this.heights.indexAt(at);
    this.anchors = [];
    for (let index = first; index < Math.min(first + 12, this.props.items.length); index += 1) {
      this.anchors.push({ key: this.props.keyOf(this.props.items[index]!), delta: at - this.heights.offset(index) });
    }
  }

  private near(): void {
    const at = this.top - this.base();
    if (at < 1500) this.props.onNearStart?.();
    if (this.heights.total - at - this.viewport < 3000) this.props.onNearEnd?.();
  }

  private redraw(): void {
    const { first, end } = this.heights.range(this.top - this.base(), this.viewport, OVERSCAN);
    // Rows are drawn a little ahead, so most scroll events draw nothing.
    const covers = first >= this.first && end <= this.end && this.end - this.first - (end - first) < 80;
    if (!covers) this.setState({});
  }

  override render({ items, keyOf, children, fixed, scrollerProps, windowProps, rowProps, header }: Props<T>) {
    this.rebuild();
    if (this.following) this.top = Math.max(0, this.base() + this.heights.total - this.viewport);
    const range = this.heights.range(this.top - this.base(), this.viewport, OVERSCAN * 1.5);
    this.first = range.first;
    this.end = range.end;
    const rows: JSX.Element[] = [];
    for (let index = range.first; index < range.end; index += 1) {
      const item = items[index]!;
      rows.push(
        <div role="presentation" {...rowProps?.(item, index)} key={keyOf(item)} data-index={index} class="row">
          {children(item, index)}
        </div>,
      );
    }
    return (
      <div {...scrollerProps} class={`scroller ${scrollerProps?.class ?? ''}`} ref={this.scroller} onScroll={this.scrolled}>
        {header}
        <div class="canvas" ref={this.canvas} role="presentation">
          <div {...windowProps} class={`window${fixed ? ' fixed' : ''}`} ref={this.window}>
            {rows}
          </div>
        </div>
      </div>
    );
  }
}
