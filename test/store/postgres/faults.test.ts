// Which faults of a connection or a statement are passing, and which are the database's own (16 §3.4).
import net from 'node:net';
import { describe, expect, test } from 'vitest';
import { StorageFault } from '#protocol/journal-batch.ts';
import { isConnectionFault, isTransient, journalFault } from '#store/postgres/connection/faults.ts';

const fault = (code: string) => Object.assign(new Error(code), { code });

describe('a fault of the database', () => {
  test.each([
    'ENETUNREACH',
    'ENETDOWN',
    'EHOSTUNREACH',
    'EHOSTDOWN',
    'ECONNABORTED',
    'ENOTCONN',
    'EADDRNOTAVAIL',
    'EPIPE',
  ])('of a socket, %s, is passing', (code) => {
    expect(isConnectionFault(fault(code))).toBe(true);
    expect(isTransient(fault(code))).toBe(true);
  });

  test('of a connection that Node itself refuses to open is passing', async () => {
    // No route leads to a broadcast address.
    const socket = net.connect({ host: '255.255.255.255', port: 1 });
    const error = await new Promise<unknown>((resolve) => socket.once('error', resolve));
    expect(isTransient(error)).toBe(true);
  });

  test.each(['25006', '08006', '40001', '53300', '57P01', '57P03'])('with SQLSTATE %s is passing', (code) => {
    expect(isTransient(fault(code))).toBe(true);
    expect(journalFault(fault(code))).toBeInstanceOf(StorageFault);
  });

  test.each(['58030', '42501', '42P01', 'XX000'])('with SQLSTATE %s is named, and not asked again', (code) => {
    expect(isTransient(fault(code))).toBe(false);
    expect(journalFault(fault(code))).toMatchObject({ name: 'StorageFault', message: expect.stringContaining(code) });
  });

  test.each(['22P02', '23514', '54000', 'ERR_INVALID_ARG_TYPE'])('%s belongs to the statement', (code) => {
    const error = fault(code);
    expect(isTransient(error)).toBe(false);
    expect(journalFault(error)).toBe(error);
  });
});
