/** Says which tab of the browser holds the one event stream. */
export interface Leadership {
  /** Waits until this tab leads, runs `lead`, and gives the place up when that ends. */
  run(lead: () => Promise<void>, signal: AbortSignal): Promise<void>;
}

const LOCK_NAME = 'penstock-events';
const LEASE_KEY = 'penstock-events-leader';
const LEASE_MILLISECONDS = 6000;
const RENEW_MILLISECONDS = 2000;

export function createLeadership(): Leadership {
  return 'locks' in navigator ? new LockLeadership() : new LeaseLeadership();
}

export class LockLeadership implements Leadership {
  async run(lead: () => Promise<void>, signal: AbortSignal): Promise<void> {
    try {
      await navigator.locks.request(LOCK_NAME, { signal }, lead);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}

interface Lease {
  holder: string;
  until: number;
}

/**
 * For plain http, where web locks do not exist: a lease in the browser's storage, renewed while
 * held. Two tabs that write at the same instant see it at the re-read after a short random wait.
 */
export class LeaseLeadership implements Leadership {
  private readonly holder = Math.random().toString(36).slice(2);

  async run(lead: () => Promise<void>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!this.isFree() || !(await this.take(signal))) {
        await pause(RENEW_MILLISECONDS / 2 + Math.random() * RENEW_MILLISECONDS, signal);
        continue;
      }
      const renewal = setInterval(() => {
        this.write();
      }, RENEW_MILLISECONDS);
      try {
        await lead();
      } finally {
        clearInterval(renewal);
        this.release();
      }
      return;
    }
  }

  private isFree(): boolean {
    const lease = this.read();
    return lease === null || lease.holder === this.holder || lease.until < Date.now();
  }

  private async take(signal: AbortSignal): Promise<boolean> {
    this.write();
    await pause(50 + Math.random() * 100, signal);
    // Storage that keeps nothing (private modes) must not leave this tab without events.
    const lease = this.read();
    return !signal.aborted && (lease === null || lease.holder === this.holder);
  }

  private read(): Lease | null {
    try {
      return JSON.parse(localStorage.getItem(LEASE_KEY) ?? 'null') as Lease | null;
    } catch {
      return null;
    }
  }

  private write(): void {
    const lease: Lease = { holder: this.holder, until: Date.now() + LEASE_MILLISECONDS };
    try {
      localStorage.setItem(LEASE_KEY, JSON.stringify(lease));
    } catch {
      // Without storage every tab has a stream of its own, none when hidden.
    }
  }

  private release(): void {
    if (this.read()?.holder === this.holder) localStorage.removeItem(LEASE_KEY);
  }
}

export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    signal.addEventListener('abort', finish);
  });
}
