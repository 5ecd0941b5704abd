import{a,b,c}from"./chunk-LWIMMVD3.js";import"./chunk-V4MFVIZ4.js";import"./chunk-P44GZZY7.js";import"./chunk-D335XX6A.js";export{b as Events,c as KeyLink,a as default};
