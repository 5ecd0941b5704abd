import "./style/main.css";
import "./theme";
import { render } from "preact";
import { App } from "./app";
import { listen } from "./live";

const root = document.getElementById("app");
listen();
if (root) render(<App />, root);
