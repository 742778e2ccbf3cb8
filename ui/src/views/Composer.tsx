// Where the person writes.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { upload } from '../api/http';
import { connection } from '../api/socket';
import { secondHand } from '../state/clock';
import { agentOf } from '../state/filter';
import { denied } from '../state/rights';
import { draft, keepDraft } from '../state/settings';
import type { Transcript } from '../state/transcript';
import { oneLine } from '../text/clean';
import { duration, size } from '../text/time';
import { dragging, dropped } from './drops';
import { attempt, Icon, tell } from './parts';

const FILE_MAX = 12 * 1024 * 1024;
const HEIGHT_MAX = 320;

interface Attached {
  name: string;
  bytes: number;
  part: number;
  id?: string;
  error?: string;
}

export const composerKeys: { focus?: () => void } = {};

export function Composer({ transcript, onSent }: { transcript: Transcript; onSent: () => void }) {
  const key = transcript.reference;
  const [text, setText] = useState(() => draft(key));
  const [files, setFiles] = useState<Attached[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const row = transcript.row.value;
  const going = transcript.runs.value.filter((run) => run.state === 'running');
  const queued = transcript.runs.value.filter((run) => run.state === 'queued');
  const isRunning = row?.status === 'running' || going.length > 0;
  const offline = connection.value.name !== 'open';
  const forbidden = denied('write') ?? (row?.sendPolicy === 'deny' ? 'This session takes no messages: its send policy is “deny”.' : undefined);
  const uploading = files.some((file) => !file.id && !file.error);
  const canSend = (text.trim() !== '' || files.some((file) => file.id)) && !uploading && !forbidden && !offline;

  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, HEIGHT_MAX)}px`;
  }, [text]);

  useLayoutEffect(() => {
    composerKeys.focus = () => field.current?.focus();
    return () => delete composerKeys.focus;
  }, []);

  const write = (value: string) => {
    setText(value);
    keepDraft(key, value);
  };

  const send = () => {
    if (!canSend) return;
    const attached = files.filter((file) => file.id).map((file) => ({ id: file.id!, name: file.name }));
    void transcript.send(text.trim(), attached);
    write('');
    setFiles([]);
    onSent();
    field.current?.focus();
  };

  const attach = (list: Iterable<File>) => {
    if (forbidden) {
      tell(forbidden, 'bad');
      return;
    }
    for (const file of list) {
      const name = file.name || 'pasted.png';
      if (file.size > FILE_MAX) {
        tell(`${oneLine(name)} is ${size(file.size)}; at most ${size(FILE_MAX)} can be attached.`, 'bad');
        continue;
      }
      const entry: Attached = { name, bytes: file.size, part: 0 };
      let current = entry;
      const change = (part: Partial<Attached>) => {
        const next = { ...current, ...part };
        const before = current;
        current = next;
        setFiles((all) => all.map((other) => (other === before ? next : other)));
      };
      setFiles((all) => [...all, entry]);
      upload(file, name, (part) => change({ part }))
        .then((uploaded) => change({ id: uploaded.id, name: uploaded.name, part: 1 }))
        .catch((error: Error) => change({ error: error.message }));
    }
  };

  const waiting = dropped.value;
  useEffect(() => {
    if (!waiting) return;
    dropped.value = undefined;
    if (waiting.key === key) attach(waiting.files);
  }, [waiting]);

  const stop = () => void attempt(() => transcript.abort());

  return (
    <div class="composer-frame">
      <div class="composer column">
        <Activity isRunning={isRunning} since={going[0]?.startedAt ?? undefined} agent={row ? agentOf(row) : ''} queued={queued.length} />
        <div class={`composer-box${dragging.value ? ' over' : ''}${forbidden ? ' forbidden' : ''}`}>
          {files.length > 0 && (
            <ul class="attached" aria-label="Attached files">
              {files.map((file, index) => (
                <li key={index} class={file.error ? 'bad' : ''} title={file.error}>
                  <Icon name="file" />
                  <span class="file-name">{oneLine(file.name)}</span>
                  <span class="file-size">{file.error ?? (file.id ? size(file.bytes) : `${Math.round(file.part * 100)}%`)}</span>
                  <button type="button" class="icon-button" aria-label={`Remove ${oneLine(file.name)}`} onClick={() => setFiles(files.filter((other) => other !== file))}>
                    <Icon name="close" />
                  </button>
                </li>
              ))}
            </ul>
          )}
          <textarea
            ref={field}
            rows={1}
            value={text}
            disabled={Boolean(forbidden)}
            placeholder={forbidden ?? (row ? `Message ${oneLine(agentOf(row)) || 'this session'}` : 'Message')}
            aria-label="Message"
            aria-describedby="composer-hint"
            onInput={(event) => write(event.currentTarget.value)}
            onPaste={(event) => {
              const pasted = event.clipboardData?.files;
              if (pasted?.length) {
                event.preventDefault();
                attach(pasted);
              }
            }}
            onKeyDown={(event) => {
              if (event.isComposing) return;
              if (event.key === 'Enter' && !event.shiftKey && !event.altKey) {
                event.preventDefault();
                send();
              } else if (event.key === 'Escape') {
                event.stopPropagation();
                if (isRunning && !forbidden) stop();
                else event.currentTarget.blur();
              }
            }}
          />
          <div class="composer-actions">
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              onChange={(event) => {
                attach(event.currentTarget.files ?? []);
                event.currentTarget.value = '';
              }}
            />
            <button type="button" class="icon-button" aria-label="Attach files" title={forbidden ?? 'Attach files'} disabled={Boolean(forbidden)} onClick={() => picker.current?.click()}>
              <Icon name="clip" />
            </button>
            <p class="hint" id="composer-hint">
              {offline ? 'Not connected; your draft is kept.' : uploading ? 'It can be sent when its files are there.' : isRunning ? <><kbd>Esc</kbd> stops · a new message waits for its turn</> : <><kbd>Enter</kbd> sends · <kbd>Shift Enter</kbd> new line</>}
            </p>
            {isRunning && (
              <button type="button" class="stop" disabled={Boolean(forbidden) || offline} title={forbidden ?? 'Stop (Esc)'} onClick={stop}><Icon name="stop" />Stop</button>
            )}
            {(!isRunning || text.trim() !== '') && (
              <button type="button" class="primary send" aria-label="Send" title={forbidden ?? 'Send (Enter)'} disabled={!canSend} onClick={send}><Icon name="up" /></button>
            )}
          </div>
        </div>
      </div>
    </div>
  );
}

function Activity({ isRunning, since, agent, queued }: { isRunning: boolean; since: number | undefined; agent: string; queued: number }) {
  if (!isRunning && queued === 0) return null;
  return (
    <p class="activity" role="status">
      {isRunning && <span class="dot running" aria-hidden="true" />}
      <span>{isRunning ? `${oneLine(agent) || 'The agent'} is working` : 'Waiting to start'}</span>
      {isRunning && since !== undefined && <span class="ticking" aria-hidden="true">{duration(secondHand.value - since)}</span>}
      {queued > 0 && <span class="queued">{queued} queued</span>}
    </p>
  );
}
