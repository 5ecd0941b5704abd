declare module "node:test" {
  export function test(name: string, body: () => void): void;
}
declare module "node:assert/strict" {
  export function equal(found: unknown, wanted: unknown, message?: string): void;
  export function ok(found: unknown, message?: string): void;
  export function deepEqual(found: unknown, wanted: unknown, message?: string): void;
}
