export { Page } from "./page";
