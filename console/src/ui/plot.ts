// Loaded by the first chart that is shown.
import "uplot/dist/uPlot.min.css";
import uPlot from "uplot";

export default uPlot;
