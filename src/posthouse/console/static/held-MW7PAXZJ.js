import{a,b,c}from"./chunk-X4SWLUKB.js";import"./chunk-ANFIQFJ3.js";import"./chunk-UQF6EZZS.js";import"./chunk-RK44OP5K.js";export{b as Events,c as KeyLink,a as default};
