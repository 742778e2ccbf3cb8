// Starts a gateway for one test file: `sess serve` over a store of its own, with imported sessions and a
// scripted model. $SESS is the binary.

import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CONFIG, SCRIPT, type Seed } from './fixture';

const execute = promisify(execFile);

export interface Gateway {
  /** Where it listens, without a slash at the end. */
  url: string;
  /** The owner's token. */
  token: string;
  /** Makes a token that may only read. */
  readToken: () => Promise<string>;
  /** Runs a program in a directory, with the environment of the gateway; returns what it prints. */
  run: Run;
  stop: () => Promise<void>;
}

/** Runs `sess`, or another program by its name, in a directory. */
export type Run = (cwd: string, program: 'sess' | 'git', ...args: string[]) => Promise<string>;

/** With `prepare`, the gateway is started in the directory that it returns. */
export async function start(seeds: Seed[], prepare?: (directory: string, run: Run) => Promise<string>): Promise<Gateway> {
  const directory = await mkdtemp(join(tmpdir(), 'sess-ui-'));
  const home = join(directory, 'home');
  await mkdir(home, { mode: 0o700 });
  const config = join(directory, 'sess.yaml');
  await writeFile(config, CONFIG);
  await writeFile(join(directory, 'script.jsonl'), SCRIPT);
  const files: string[] = [];
  for (const [index, seed] of seeds.entries()) {
    const file = join(directory, `seed-${index}.jsonl`);
    await writeFile(file, [seed.head, ...seed.messages].map((line) => `${JSON.stringify(line)}\n`).join(''));
    files.push(file);
  }

  const sess = process.env['SESS'];
  if (!sess) throw new Error('set SESS to the sess binary');
  // Nothing of the machine's own configuration, and no sign that an agent is calling.
  const env = { PATH: process.env['PATH'], HOME: directory, SESS_HOME: home, XDG_CONFIG_HOME: join(directory, 'config'), TZ: 'UTC' };
  const run: Run = async (cwd, program, ...args) =>
    (await execute(program === 'sess' ? sess : program, args, { env, maxBuffer: 1 << 24, cwd })).stdout.trim();
  const call = (...args: string[]) => run(directory, 'sess', ...args);

  for (let at = 0; at < files.length; at += 500) await call('import', ...files.slice(at, at + 500));
  const cwd = prepare ? await prepare(directory, run) : directory;
  const gateway = spawn(sess, ['serve', '--config', config, '--listen', '127.0.0.1:0'], { env, cwd });
  const url = await address(gateway);
  return {
    url,
    token: await call('token'),
    readToken: async () => (JSON.parse(await call('token', 'create', '--scope', 'read', '--json')) as { secret: string }).secret,
    run,
    stop: async () => {
      const ended = new Promise((resolve) => gateway.once('exit', resolve));
      gateway.kill('SIGTERM');
      await ended;
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Waits for the address that the gateway says it listens at. */
function address(gateway: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = '';
    const timer = setTimeout(() => reject(new Error(`the gateway did not say where it listens:\n${said}`)), 20_000);
    const listen = (data: Buffer) => {
      said += data.toString();
      const found = /https?:\/\/127\.0\.0\.1:(?!0\b)\d+/.exec(said);
      if (!found) return;
      clearTimeout(timer);
      resolve(found[0]);
    };
    gateway.stdout?.on('data', listen);
    gateway.stderr?.on('data', listen);
    gateway.once('exit', (code) => reject(new Error(`the gateway ended with ${code}:\n${said}`)));
  });
}
