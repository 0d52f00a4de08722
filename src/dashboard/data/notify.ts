// A notification of the browser when more needs attention while the page is not looked at, once a person has allowed it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatCount } from '../format/format.ts';

/** Whether the browser may notify; `ask` is for a click, since a page must not ask by itself. */
export function useNotificationPermission() {
  const supported = 'Notification' in globalThis && isSecureContext;
  const [permission, setPermission] = useState<NotificationPermission>(() => {
    if (supported) return Notification.permission;
    return 'denied';
  });
  const ask = () => void Notification.requestPermission().then(setPermission);
  return { permission, ask };
}

/** Notifies when the count grows while the page is hidden. */
export function useAttentionNotice(count: number): void {
  const before = useRef(count);
  useEffect(() => {
    const grown = count > before.current;
    before.current = count;
    if (!grown || !('Notification' in globalThis) || Notification.permission !== 'granted') return;
    if (document.visibilityState === 'visible' && document.hasFocus()) return;
    new Notification('Metis needs you', { body: `${formatCount(count, 'matter')} for your attention`, tag: 'metis' });
  }, [count]);
}
