// What a browser keeps for this page: the token until the tab closes, the colour scheme for good (17 §3).

const TOKEN = 'metis.token';
const THEME = 'metis.theme';

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

/** A browser may refuse all storage: then the page remembers until it is reloaded. */
function tryStorage<T>(work: () => T): T | null {
  try {
    return work();
  } catch {
    return null;
  }
}

export function readToken(): string | null {
  return tryStorage(() => sessionStorage.getItem(TOKEN));
}

export function keepToken(token: string): void {
  tryStorage(() => sessionStorage.setItem(TOKEN, token));
}

export function forgetToken(): void {
  tryStorage(() => sessionStorage.removeItem(TOKEN));
}

export function readTheme(): Theme {
  const kept = tryStorage(() => localStorage.getItem(THEME));
  return THEMES.find((theme) => theme === kept) ?? 'system';
}

export function applyTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
}

export function keepTheme(theme: Theme): void {
  tryStorage(() => localStorage.setItem(THEME, theme));
  applyTheme(theme);
}
