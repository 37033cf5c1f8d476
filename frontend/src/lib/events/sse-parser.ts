export interface ServerEvent {
  id: string | null;
  event: string;
  data: string;
}

/** Reads a server-sent-event stream piece by piece; a piece may end anywhere, even inside CRLF. */
export class SseParser {
  private rest = '';
  private id: string | null = null;
  private event = '';
  private data: string[] = [];

  push(chunk: string): ServerEvent[] {
    const text = this.rest + chunk;
    // A trailing CR may be the first half of a CRLF: it waits for the next piece.
    const end = text.endsWith('\r') ? text.length - 1 : text.length;
    const lines = text.slice(0, end).split(/\r\n|\r|\n/);
    this.rest = (lines.pop() ?? '') + text.slice(end);
    const events: ServerEvent[] = [];
    for (const line of lines) {
      if (line === '') this.finish(events);
      else this.take(line);
    }
    return events;
  }

  private take(line: string): void {
    if (line.startsWith(':')) return;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id' && !value.includes('\0')) this.id = value;
  }

  private finish(events: ServerEvent[]): void {
    if (this.data.length > 0) {
      events.push({ id: this.id, event: this.event || 'message', data: this.data.join('\n') });
    }
    this.event = '';
    this.data = [];
  }
}
