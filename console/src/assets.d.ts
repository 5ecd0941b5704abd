declare module "*.css";

/** Built by `npm run watch` or with `--development`: /style is there too, which shows every part. */
declare const DEVELOPMENT: boolean;
