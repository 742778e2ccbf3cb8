// Writes src/api/types.ts from docs/gateway.schema.json, the schema of everything the gateway says.
// `npm run types -- --check` writes nothing and fails when the file is out of date.
import { readFile, writeFile } from 'node:fs/promises';
import { compile } from 'json-schema-to-typescript';

const source = new URL('../../docs/gateway.schema.json', import.meta.url);
const target = new URL('../src/api/types.ts', import.meta.url);

const schema = JSON.parse(await readFile(source, 'utf8'));
// The generator names what stands under `definitions`, and follows references there.
const text = JSON.stringify({ definitions: schema.$defs, title: schema.title, type: 'object' })
  .replaceAll('#/$defs/', '#/definitions/');
const types = await compile(JSON.parse(text), 'Gateway', {
  additionalProperties: false,
  bannerComment: '// Generated from docs/gateway.schema.json by `npm run types`. Do not edit.',
  style: { singleQuote: true, printWidth: 110 },
  unreachableDefinitions: true,
});
const clean = types.replace(/export interface Gateway \{\}\n+/, '').replaceAll(/ \*\n \* This interface was referenced by `Gateway`'s JSON-Schema\n \* via the `definition` "[^"]+"\.\n/g, '')
  .replaceAll(/\/\*\*\n \* This interface was referenced by `Gateway`'s JSON-Schema\n \* via the `definition` "[^"]+"\.\n \*\/\n/g, '');

if (process.argv.includes('--check')) {
  if ((await readFile(target, 'utf8')) !== clean) {
    console.error('ui/src/api/types.ts is out of date: run `npm run types` in ui/');
    process.exit(1);
  }
} else {
  await writeFile(target, clean);
}
