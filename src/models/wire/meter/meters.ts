// The meter of each wire (19 §2.2).
import type { ClientWire } from '#protocol/api/gateway.ts';
import { chatMeter } from './chat.ts';
import { messagesMeter } from './messages.ts';
import type { WireMeter } from './meter.ts';
import { responsesMeter } from './responses.ts';

export const METERS: Readonly<Record<ClientWire, WireMeter>> = {
  messages: messagesMeter,
  chat: chatMeter,
  responses: responsesMeter,
};
