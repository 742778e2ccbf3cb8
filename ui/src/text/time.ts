// Times and amounts as people read them.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Returns how long ago something was, as short as it can be said: `now`, `5m`, `3h`, `2d`, `14 Mar`. */
export function ago(then: number, now: number): string {
  const past = now - then;
  if (past < MINUTE) return 'now';
  if (past < HOUR) return `${Math.floor(past / MINUTE)}m`;
  if (past < DAY) return `${Math.floor(past / HOUR)}h`;
  if (past < 7 * DAY) return `${Math.floor(past / DAY)}d`;
  const date = new Date(then);
  const sameYear = date.getFullYear() === new Date(now).getFullYear();
  return date.toLocaleDateString('en-GB', {
    day: 'numeric',
    month: 'short',
    ...(sameYear ? {} : { year: 'numeric' }),
  });
}

/** Returns a length of time: `0.4s`, `12s`, `3m 05s`, `2h 04m`. */
export function duration(ms: number): string {
  if (ms < 0) return '0s';
  if (ms < 10_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m ${pad(seconds % 60)}s`;
  return `${Math.floor(minutes / 60)}h ${pad(minutes % 60)}m`;
}

const pad = (value: number) => String(value).padStart(2, '0');

/** Returns the time of day: `14:05`. */
export function clock(then: number): string {
  const date = new Date(then);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** Returns the full date and time, for titles. */
export function moment(then: number): string {
  return new Date(then).toLocaleString('en-GB', { dateStyle: 'full', timeStyle: 'medium' });
}

/** Returns the name of a day: `Today`, `Yesterday`, `Tuesday`, `14 March 2025`. */
export function day(then: number, now: number): string {
  const start = (time: number) => new Date(time).setHours(0, 0, 0, 0);
  const days = Math.round((start(now) - start(then)) / DAY);
  if (days === 0) return 'Today';
  if (days === 1) return 'Yesterday';
  const date = new Date(then);
  if (days > 1 && days < 7) return date.toLocaleDateString('en-GB', { weekday: 'long' });
  return date.toLocaleDateString('en-GB', { day: 'numeric', month: 'long', year: 'numeric' });
}

/** Returns a count as short as it can be said: `940`, `12.4k`, `1.2M`. */
export function amount(count: number): string {
  if (count < 1000) return String(count);
  const [value, unit] = count < 999_950 ? [count / 1000, 'k'] : [count / 1_000_000, 'M'];
  return `${value < 100 ? trim(value.toFixed(1)) : Math.round(value)}${unit}`;
}

const trim = (value: string) => value.replace(/\.0$/, '');

/** Returns a cost in dollars: `$0.003`, `$1.20`. */
export function cost(dollars: number): string {
  if (dollars === 0) return '$0';
  if (dollars < 0.0005) return '<$0.001';
  return dollars < 0.1 ? `$${dollars.toFixed(3)}` : `$${dollars.toFixed(2)}`;
}

/** Returns a size: `512 B`, `12 kB`, `3.4 MB`. */
export function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${Math.round(bytes / 1000)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
