import { afterEach, expect, test, vi } from 'vitest';
import { copyText } from '@/lib/clipboard';

afterEach(() => {
  Reflect.deleteProperty(document, 'execCommand');
  document.body.replaceChildren();
});

test('without a secure context the text is selected inside the open dialog and copied', async () => {
  vi.stubGlobal('isSecureContext', false);
  const seen: unknown[] = [];
  document.execCommand = (command: string) => {
    const area = document.activeElement;
    seen.push([
      command,
      area instanceof HTMLTextAreaElement && area.value,
      area?.closest('[role=dialog]') !== null,
    ]);
    return true;
  };
  document.body.innerHTML = '<div role="dialog"><button>Copy</button></div>';
  const button = document.querySelector('button');
  button?.focus();
  await expect(copyText('four lines')).resolves.toBe(true);
  expect(seen).toEqual([['copy', 'four lines', true]]);
  expect(document.querySelector('textarea')).toBeNull();
  expect(document.activeElement).toBe(button);
});

test('a browser that cannot copy says so', async () => {
  vi.stubGlobal('isSecureContext', false);
  document.execCommand = () => {
    throw new Error('not allowed');
  };
  await expect(copyText('x')).resolves.toBe(false);
});
